// The keyboard: everything that the mouse can do.

import { clear, current, forbid, redo, release, show, undo, work } from './work.js';
import { choose, give, leastCertain, pick } from './tree.js';
import { keep, make, takeBest } from './panel.js';

const at = (id) => document.getElementById(id);
const BINDINGS = [
  [['←', '→'], 'the word before, and the next one'],
  [['Enter'], 'choose a head: arrows move to it (up: the root), Enter takes it, Esc leaves it'],
  [['n'], 'the word to look at next: the least certain'],
  [['a'], 'keep the arc of the word, or leave it open again'],
  [['f'], 'forbid the arc'],
  [['l'], 'choose the label'],
  [['t'], 'choose the tag, where the model reads tags'],
  [['Del'], 'take back what was decided about the word'],
  [['1', '…', '6'], 'take one of the most probable trees'],
  [['c'], 'go to the constraints'],
  [['j', 'k'], 'the next sentence, and the one before'],
  [['u', 'r'], 'undo, and redo; Ctrl+Z and Ctrl+Shift+Z, too'],
  [['o', 'e'], 'open, export'],
  [['Esc'], 'choose no word'],
  [['?'], 'this help'],
];

export function listBindings() {
  at('bindings').replaceChildren(...BINDINGS.flatMap(([keys, text]) => [
    make('dt', '', {}, ...keys.map((key) => (key === '…' ? '… ' : make('kbd', key)))), make('dd', text)]));
}

function move(by) {
  const s = current(), most = s?.answer?.heads.length ?? 0;
  if (!most) return;
  if (pick.head < 0) { choose(pick.word ? Math.min(Math.max(pick.word + by, 1), most) : by > 0 ? 1 : most); return; }
  let head = pick.head + by;
  if (head === pick.word) head += by;
  if (head >= 0 && head <= most) choose(pick.word, head);
}

function enter() {
  const s = current();
  if (!pick.word) { choose(1); return; }
  if (pick.head < 0) choose(pick.word, s.answer.heads[pick.word - 1]);
  else { const word = pick.word; give(pick.head); choose(word); }
}

const onWord = (act) => () => { if (pick.word && current()?.answer) act(pick.word); };

const ACTS = {
  ArrowLeft: () => move(document.querySelector('#box [direction=rtl]') ? 1 : -1),
  ArrowRight: () => move(document.querySelector('#box [direction=rtl]') ? -1 : 1),
  ArrowUp: () => { if (pick.head >= 0) choose(pick.word, 0); else return false; },
  Enter: enter,
  Escape: () => { if (pick.head >= 0) choose(pick.word); else choose(0); },
  Delete: onWord(clear),
  Backspace: onWord(clear),
  n: () => { choose(leastCertain(current())); at('box').focus({ preventScroll: true }); },
  a: onWord((word) => { if (word in current().required) release(word); else keep(word); }),
  f: onWord((word) => forbid(current().answer.heads[word - 1], word)),
  l: onWord(() => at('panel').querySelector('[data-key=label]')?.focus()),
  t: onWord(() => at('panel').querySelector('[data-key=tag]')?.focus()),
  c: () => at('constraints').querySelector('input')?.focus(),
  j: () => { if (work.current < work.sentences.length - 1) { choose(0); show(work.current + 1); } },
  k: () => { if (work.current > 0) { choose(0); show(work.current - 1); } },
  u: undo,
  r: redo,
  o: () => at('open').click(),
  e: () => { at('export').open = true; at('export').querySelector('.menu button').focus(); },
  '?': () => at('help').click(),
};
for (let rank = 1; rank <= 6; rank++) ACTS[rank] = () => takeBest(rank - 1);

document.addEventListener('keydown', (event) => {
  const target = event.target;
  if (document.querySelector('dialog[open]') || target.closest('textarea')) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'z') {
    event.preventDefault();
    if (event.shiftKey) redo(); else undo();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape' && target !== document.body) {
    at('export').open = false;
    at('box').focus({ preventScroll: true });
  }
  // Controls keep the keys that they need themselves.
  if (target.closest('select') && event.key !== 'Escape') return;
  if (target.closest('button, summary, input') && ['Enter', ' ', 'ArrowUp', 'ArrowDown'].includes(event.key)) return;
  if (ACTS[event.key] && ACTS[event.key]() !== false) event.preventDefault();
});
