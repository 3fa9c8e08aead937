"""The look of drawings and pages: colours, style sheets and the page's script.

The colours are told apart by the colour-blind too, and nothing is said by colour alone.
"""

from __future__ import annotations

from string import Template

WORD_SIZE = 15.0
TAG_SIZE = 10.0
LABEL_SIZE = 11.0

FONT = "'Noto Sans','Helvetica Neue',Helvetica,Arial,'Liberation Sans',system-ui,sans-serif"

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1e23",
    "soft": "#5d6570",
    "line": "#d9dde3",
    "arc": "#59626e",
    "wrong": "#b8420a",
    "right": "#0a5fa8",
    "tint": "#f4f6f8",
}
DARK = {
    "paper": "#15181d",
    "ink": "#e9ecf0",
    "soft": "#a0a8b3",
    "line": "#353b44",
    "arc": "#a9b2be",
    "wrong": "#ff9a5c",
    "right": "#74bbff",
    "tint": "#1e2229",
}

# Selectors that simple programs know, too, those that make a PNG: no :not(), no :first-of-type.
_SVG_SHAPES = Template("""
.gp text{font:${word}px $font;text-anchor:middle}
.gp .t{font-size:${tag}px;letter-spacing:.02em}
.gp .a text{font-size:${label}px}
.gp path{fill:none;stroke-width:1.3}
.gp .h{stroke:none}
.gp .x path{stroke-width:2.2}
.gp .x text,.gp .l text,.gp .g text{font-weight:600}
.gp .g path{stroke-width:1.8;stroke-dasharray:5 3}
.gp .a .k{stroke-width:8.4;stroke-dasharray:none}
.gp .e text{text-decoration:underline}
.gp .e .t{text-decoration:none}
.gp .m text{font-size:11px;font-style:italic}
""")
_SVG_COLOURS = Template("""
.gp{background:$paper}
.gp text{fill:$ink}
.gp .t,.gp .m text{fill:$soft}
.gp .a path{stroke:$arc}
.gp .a .h{fill:$arc;stroke:none}
.gp .a .k{stroke:$paper}
.gp .m path{stroke:$soft}
.gp .x path{stroke:$wrong}
.gp .x .h{fill:$wrong}
.gp .x text,.gp .l .p{fill:$wrong}
.gp .g path{stroke:$right}
.gp .g .h{fill:$right}
.gp .g text,.gp .q{fill:$right}
.gp .e text{fill:$wrong}
.gp .e .t{fill:$soft}
""")


def svg_style(dark: bool = True) -> str:
    """The style sheet of a drawing, for light surroundings and, where wanted, for dark ones."""
    shapes = _SVG_SHAPES.substitute(font=FONT, word=f"{WORD_SIZE:g}", tag=f"{TAG_SIZE:g}", label=f"{LABEL_SIZE:g}")
    other = f"@media screen and (prefers-color-scheme:dark){{{_SVG_COLOURS.substitute(DARK)}}}" if dark else ""
    return f"{shapes}{_SVG_COLOURS.substitute(LIGHT)}{other}\n"


_PAGE = Template("""
:root{color-scheme:light dark;$light}
@media screen and (prefers-color-scheme:dark){:root{$dark}}
*{box-sizing:border-box}
html{scroll-padding-top:4rem}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 $font}
.top,main,footer{max-width:100rem;margin:0 auto;padding:0 1.5rem}
h1{font-size:1.5rem;line-height:1.25;margin:1.75rem 0 .25rem;overflow-wrap:anywhere}
a{color:var(--right)}
.top p{margin:.15rem 0;color:var(--soft);overflow-wrap:anywhere}
dl{display:flex;flex-wrap:wrap;gap:.5rem 2.25rem;margin:1rem 0}
dt{font-size:.8rem;color:var(--soft)}
dd{margin:0;font-size:1.3rem;font-variant-numeric:tabular-nums}
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.75rem;margin:1rem 0 1.25rem;padding:0;list-style:none;font-size:.85rem}
.legend li{display:flex;align-items:center;gap:.5rem}
nav{position:sticky;top:0;z-index:1;background:var(--paper);border-block:1px solid var(--line)}
nav div{display:flex;flex-wrap:wrap;align-items:center;gap:.4rem .6rem;
max-width:100rem;margin:0 auto;padding:.45rem 1.5rem}
nav label{margin-inline-start:auto;font-size:.9rem}
button,.first{font:inherit;font-size:.9rem;color:inherit;background:var(--tint);border:1px solid var(--line);
border-radius:.4rem;padding:.15rem .7rem;cursor:pointer;text-decoration:none}
button:hover,.first:hover{border-color:var(--soft)}
kbd{font:inherit;font-size:.8em;color:var(--soft);border:1px solid var(--line);
border-radius:.25rem;padding:0 .3em;margin-inline-start:.3em}
section{content-visibility:auto;border-bottom:1px solid var(--line);padding:1rem 0 .8rem}
section:target,section:has(:target){border-inline-start:3px solid var(--right);padding-inline-start:.8rem}
.head{display:flex;flex-wrap:wrap;gap:0 1rem;align-items:baseline;font-size:.85rem;color:var(--soft)}
.head a{color:inherit;text-decoration-color:var(--line)}
.head b{color:var(--ink);font-weight:600;overflow-wrap:anywhere}
.head .f{font-variant-numeric:tabular-nums}
.head .c{color:var(--wrong);font-weight:600}
.head .n{margin-inline-start:auto}
.text{margin:.2rem 0 .4rem;overflow-wrap:anywhere;unicode-bidi:plaintext;text-align:start}
.box{overflow-x:auto;overflow-y:hidden;scrollbar-width:thin;
background:linear-gradient(90deg,var(--paper) 30%,transparent) left/2.5rem 100%,
linear-gradient(270deg,var(--paper) 30%,transparent) right/2.5rem 100%,
linear-gradient(90deg,var(--line),transparent) left/.7rem 100%,
linear-gradient(270deg,var(--line),transparent) right/.7rem 100%;
background-repeat:no-repeat;background-attachment:local,local,scroll,scroll}
.box svg{display:block}
.box .gp{background:none}
.strips{display:none}
.gp .w,.gp .a{cursor:default}
.gp .w:hover text:first-of-type{font-weight:600}
.gp .a:hover path:not(.k),.gp .on path:not(.k){stroke-width:2.6}
.gp .a:hover text,.gp .on text{font-weight:600}
.hov .a:not(.on){opacity:.22}
footer{padding-block:1.5rem;color:var(--soft);font-size:.85rem}
body:has(#only:checked) section:not(.bad){display:none}
@media print{
@page{size:landscape;margin:12mm}
nav,.n{display:none!important}
section{content-visibility:visible;border-color:#ccc}
section:not(:has(.wide)){break-inside:avoid}
.head,.text{break-after:avoid}
.box{break-inside:avoid}
.box{overflow:visible;background:none}
.wide{height:0;overflow:hidden;break-after:avoid}
.strips{display:block}
.strips svg{display:block;max-width:100%;height:auto;break-inside:avoid}
body{font-size:10pt}
}
""")

SCRIPT = """
(function () {
  var bad = document.getElementsByClassName('bad'), bar = document.querySelector('nav'), current = -1;
  function edge() { return bar ? bar.offsetHeight + 8 : 0; }
  function settle() { document.documentElement.style.scrollPaddingTop = edge() + 'px'; }
  function seen(section) {
    var box = section.getBoundingClientRect();
    return box.bottom > edge() && box.top < innerHeight;
  }
  function jump(step) {
    var next = current + step, i;
    if (current < 0 || !seen(bad[current])) {  // from where the reader is
      for (i = 0; i < bad.length && bad[i].getBoundingClientRect().top <= edge() + 4; i++);
      next = step > 0 ? i : i - 1;
    }
    if (next < 0 || next >= bad.length) return;
    current = next;
    settle();
    history.replaceState(null, '', '#' + bad[next].id);
    bad[next].scrollIntoView();
  }
  function light(svg, word) {
    svg.classList.add('hov');
    svg.querySelectorAll('.a').forEach(function (arc) {
      if (arc.dataset.h === word || arc.dataset.m === word) arc.classList.add('on');
    });
  }
  document.addEventListener('mouseover', function (event) {
    document.querySelectorAll('.hov').forEach(function (svg) {
      svg.classList.remove('hov');
      svg.querySelectorAll('.on').forEach(function (arc) { arc.classList.remove('on'); });
    });
    var word = event.target.closest && event.target.closest('.w');
    if (word) light(word.ownerSVGElement, word.dataset.i);
  });
  document.addEventListener('click', function (event) {
    var step = event.target.dataset && event.target.dataset.step;
    if (step) jump(+step);
  });
  document.addEventListener('keydown', function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (bad.length && event.key === 'n') jump(1);
    if (bad.length && event.key === 'p') jump(-1);
  });
  settle();
  addEventListener('resize', settle);
})();
"""


def page_style() -> str:
    """The style sheet of a page, that of its drawings included."""
    light, dark = (";".join(f"--{name}:{value}" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return svg_style() + _PAGE.substitute(light=light, dark=dark, font=FONT)
