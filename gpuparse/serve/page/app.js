// Puts the parts together, and shows what has changed when something has.

import { begin, current, listen, open, redo, show, undo, work } from './work.js';
import { choose, draw, leastCertain, nodeText, onPick, pick } from './tree.js';
import { percent, showBest, showConstraints, showList, showPanel, showSide } from './panel.js';
import { readFile, save } from './files.js';
import { listBindings } from './keys.js';

const at = (id) => document.getElementById(id);
// With tags, for models that read them.
const EXAMPLE = 'I_PRON saw_VERB the_DET man_NOUN on_ADP the_DET hill_NOUN with_ADP a_DET telescope_NOUN ._PUNCT'.split(' ')
  .map((word, i) => [i + 1, word.split('_')[0], '_', word.split('_')[1], '_', '_', '_', '_', '_', '_'].join('\t')).join('\n');
let fromFile = false;

function notice(text) {
  at('notice').textContent = text;
  at('notice').hidden = !text;
}

async function attempt(act) {
  try { await act(); return true; } catch (error) { notice(error.message); return false; }
}

// What is shown ------------------------------------------------------------------------------------------------------

function showTree() {
  const s = current();
  at('empty').hidden = Boolean(s);
  at('work').hidden = !s;
  if (!s) return;
  at('sent-id').textContent = s.id ?? '';
  at('sent-id').hidden = !s.id;
  at('text').textContent = s.text;
  const { tree_probability: share, certified, estimated } = s.answer ?? {};
  const figures = [`${s.words.length} word${s.words.length === 1 ? '' : 's'}`];
  if (share !== undefined && share !== null) figures.push(`tree probability ${percent(share)}${estimated ? ', estimated' : ''}`);
  if (certified) figures.push('proven best');
  at('figures').textContent = figures.join(' · ');
  draw();
  const others = s.changed ? [...s.changed].filter((word) => !(word in s.required)).length : 0;
  at('said').textContent = !s.asking && (s.said || others)
    ? [s.said, others ? `${others} more changed` : ''].filter(Boolean).join(' · ') : '';
  const why = s.error ?? s.answer?.constraints;
  at('reason').hidden = !why;
  at('reason').textContent = why ? told(s, why) : '';
}

function told(s, why) {
  if (s.error) return `Not possible: ${why.replace(/^sentence 1: /, '')}. The tree shown is another; undo, or take something back.`;
  return `Constraints: ${why}`;
}

function hint() {
  const s = current();
  if (!s?.answer) { at('hint').textContent = ''; return; }
  const word = pick.word ? nodeText(s, pick.word) : '';
  at('hint').textContent = !word ? 'Click a word, then its head.'
    : pick.head >= 0 ? `Head of ${word}: ${nodeText(s, pick.head)}? Enter takes it.`
      : `Now click the head of ${word}, or choose below.`;
}

listen((what) => {
  if (what === 'model') {
    const { model, columns, tagger } = work.model;
    at('model').textContent = model;
    document.title = `${model} · gpuparse`;
    const missing = columns.filter((column) => !tagger.includes(column));
    at('model').title = missing.length ? `reads ${missing.join(' and ').toUpperCase()} as they are given` : '';
    showConstraints();
    return;
  }
  if (what === 'unsaved') { notice('There is no room left to keep your work in the browser: export it.'); return; }
  at('box').classList.toggle('busy', what === 'busy');
  if (what === 'busy') return;
  if (what === 'best') { showBest(); return; }
  if (what === 'list') { showList(); return; }
  if (what === 'sentence') choose(0);
  showTree();
  showPanel();
  showSide();
  showConstraintsOnce();
  showBest();
  showList();
  hint();
  warn();
});

function showConstraintsOnce() {
  const focused = at('constraints').contains(document.activeElement);
  const place = focused ? [...at('constraints').querySelectorAll('input')].indexOf(document.activeElement) : -1;
  showConstraints();
  if (place >= 0) at('constraints').querySelectorAll('input')[place]?.focus();
}

// A parser that reads tags, and a sentence without them: people should know why the tree is poor.
function warn() {
  const s = current();
  const bare = s?.answer && work.model.columns.includes('upos') && s.answer.upos.every((tag) => tag === '_');
  notice(bare ? 'This model reads tags, and the words have none: give CoNLL-U, set tags below, or start the server with --tagger.' : '');
}

onPick(() => { showPanel(); hint(); });

// What people do -----------------------------------------------------------------------------------------------------

async function take(text, options) {
  if (!text.trim()) return false;
  notice('');
  return attempt(() => open(text, options));
}

function dialog(element) {
  if (!element.open) element.showModal();
}

at('open').addEventListener('click', () => {
  at('add').hidden = !work.sentences.length;
  dialog(at('opening'));
  at('pasted').focus();
});
for (const [id, adding] of [['replace', false], ['add', true]]) {
  at(id).addEventListener('click', async () => {
    if (await take(at('pasted').value, { keep: at('keep').checked, add: adding })) at('pasted').value = '';
    at('opening').close();
    at('box').focus({ preventScroll: true });
  });
}
at('start').addEventListener('click', () => take(at('first').value, { keep: false, add: false }));
at('first').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) at('start').click();
});
at('example').addEventListener('click', () => take(`# text = I saw the man on the hill with a telescope.\n${EXAMPLE}\n\n`, { keep: false, add: false }));
for (const id of ['file', 'choose']) {
  at(id).addEventListener('click', () => { fromFile = id === 'choose'; at('chosen').click(); });
}
at('chosen').addEventListener('change', () => attempt(async () => {
  const [file] = at('chosen').files;
  at('chosen').value = '';
  if (!file) return;
  const text = await readFile(file);
  if (fromFile) { at('opening').close(); }
  await take(text, { keep: at('keep').checked, add: false });
}));
document.addEventListener('dragover', (event) => event.preventDefault());
document.addEventListener('drop', (event) => {
  event.preventDefault();
  const [file] = event.dataTransfer.files;
  if (file) attempt(async () => take(await readFile(file), { keep: at('keep').checked, add: false }));
});

at('undo').addEventListener('click', undo);
at('redo').addEventListener('click', redo);
at('previous').addEventListener('click', () => show(work.current - 1));
at('next').addEventListener('click', () => show(work.current + 1));
at('least').addEventListener('click', () => choose(leastCertain(current())));
at('help').addEventListener('click', () => dialog(at('keys')));
at('export').addEventListener('click', (event) => {
  const kind = event.target.closest('[data-export]')?.dataset.export;
  if (!kind) return;
  at('export').open = false;
  attempt(() => save(kind));
});
document.addEventListener('click', (event) => {
  if (!event.target.closest('#export')) at('export').open = false;
  if (event.target.closest('.close') || event.target instanceof HTMLDialogElement) event.target.closest('dialog').close();
});

listBindings();
attempt(begin);
