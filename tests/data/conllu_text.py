"""CoNLL-U by hand."""

from __future__ import annotations

import io

from gpuparse.data import Sentence, read_conllu

WHOLE = """\
# newdoc
# sent_id = first
# text = Vámonos al mar.
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=Yes
1\tVamos\tir\tVERB\tv\tMood=Imp\t0\troot\t0:root\t_
2\tnos\tnosotros\tPRON\t_\tCase=Acc|Number=Plur\t1\tobj\t1:obj\tA=1|B=2
2.1\tno\tno\tADV\t_\t_\t_\t_\t1:advmod\t_
2.2\tya\tya\tADV\t_\t_\t_\t_\t1:advmod\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t5\tcase\t5:case\t_
4\tel\tel\tDET\t_\t_\t5\tdet\t5:det\tConfidence=0.1|Z=z
5\tmar\tmar\tNOUN\tn\t_\t1\tobl\t1:obl\tSpaceAfter=No
6\t.\t.\tPUNCT\t.\t_\t1\tpunct\t1:punct\t_

"""


def word(number, form="a", head="0", misc="_"):
    return f"{number}\t{form}\t_\tX\t_\t_\t{head}\tdep\t_\t{misc}"


def sentence(*lines, source="f.conllu", line=1):
    return Sentence("\n".join(lines) + "\n\n", source, line)


def read(data, **options):
    return list(read_conllu(io.BytesIO(data), **options))
