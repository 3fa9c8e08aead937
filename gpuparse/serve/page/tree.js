// The drawing: the server's SVG, made to answer to clicks; what is chosen, decided and changed is marked in it.

import { current, require } from './work.js';

const SVG = 'http://www.w3.org/2000/svg';
const box = document.getElementById('box');
export const pick = { word: 0, head: -1 };  // the chosen word; the head that is being chosen for it, by keyboard
let over = -1;  // the node that the mouse is on
const listeners = [];
let drawn = null;

export function onPick(on) { listeners.push(on); }
function tell() { mark(); for (const on of listeners) on(); }

export function element(kind, attributes, parent) {
  const made = document.createElementNS(SVG, kind);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent?.append(made);
  return made;
}

export function draw() {
  const s = current();
  const text = s?.answer?.svg;
  if (!text) { box.replaceChildren(); drawn = null; return; }
  if (drawn === text && box.firstChild) { mark(); return; }
  const parsed = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement;
  if (parsed.localName !== 'svg' || parsed.querySelector('script, foreignObject, a, image, use, iframe')) {
    box.replaceChildren();
    return;
  }
  const left = box.scrollLeft;
  const svg = document.importNode(parsed, true);
  for (const arc of svg.querySelectorAll('.a')) {
    const line = arc.querySelector('path:not(.k)');
    element('path', { d: line.getAttribute('d'), class: 'hit' }, arc);
  }
  box.replaceChildren(svg);
  const top = element('g', {}, null);
  for (const word of svg.querySelectorAll('.w')) {
    const edges = word.getBBox();
    const pad = element('rect', { class: 'pad', x: edges.x - 5, y: edges.y - 2, width: edges.width + 10, height: edges.height + 5, rx: 5 }, null);
    word.insertBefore(pad, word.querySelector('text'));
  }
  svg.append(top);
  drawn = text;
  box.scrollLeft = left;
  mark();
}

// The element of a word or of the arc into it.
export const wordOf = (word) => box.querySelector(`.w[data-i="${word}"]`);
export const arcOf = (word) => box.querySelector(`.a[data-m="${word}"]`);

function mark() {
  const s = current();
  if (!s?.answer) return;
  const target = pick.head >= 0 ? pick.head : over;
  for (const word of box.querySelectorAll('.w')) {
    const number = Number(word.dataset.i);
    word.classList.toggle('from', number === pick.word);
    word.classList.toggle('to', pick.word > 0 && number === target && number !== pick.word);
    word.classList.toggle('changed', Boolean(s.changed?.has(number)));
  }
  for (const arc of box.querySelectorAll('.a')) {
    const word = Number(arc.dataset.m), head = Number(arc.dataset.h);
    arc.classList.toggle('own', word === pick.word);
    arc.classList.toggle('kept', s.required[word] === head);
    arc.classList.toggle('named', word in s.labels);
    arc.classList.toggle('changed', Boolean(s.changed?.has(word)) && s.required[word] !== head);
  }
  preview(s, target);
}

function preview(s, target) {
  const svg = box.querySelector('svg');
  svg?.querySelector('.preview')?.remove();
  if (!svg || !pick.word || target < 0 || target === pick.word || s.answer.heads[pick.word - 1] === target) return;
  const own = wordOf(pick.word)?.querySelector('.pad');
  const other = target ? wordOf(target)?.querySelector('.pad') : null;
  if (!own) return;
  const middle = (pad) => Number(pad.getAttribute('x')) + Number(pad.getAttribute('width')) / 2;
  const y = Number(own.getAttribute('y')), x = middle(own);
  if (!other) { element('path', { class: 'preview', d: `M${x} 2V${y}` }, svg); return; }
  const from = middle(other), high = Math.max(4, y - Math.min(90, 18 + Math.abs(x - from) / 4));
  element('path', { class: 'preview', d: `M${from} ${y}C${from} ${high} ${x} ${high} ${x} ${y}` }, svg);
}

export function choose(word, head = -1) {
  const s = current();
  const most = s?.answer ? s.answer.heads.length : 0;
  pick.word = word >= 1 && word <= most ? word : 0;
  pick.head = pick.word ? head : -1;
  const seen = pick.head > 0 ? pick.head : pick.word;
  if (seen) {
    const edges = wordOf(seen)?.getBoundingClientRect(), frame = box.getBoundingClientRect();
    if (edges && (edges.left < frame.left + 30 || edges.right > frame.right - 30)) {
      box.scrollLeft += edges.left + edges.width / 2 - frame.left - frame.width / 2;
    }
  }
  tell();
}

// The head of the chosen word.
export function give(head) {
  const word = pick.word, s = current();
  if (!word || head === word || !s?.answer) return;
  const arrow = `${s.answer.words[word - 1]} ← ${head ? s.answer.words[head - 1] : 'root'}`;
  choose(0);
  require(head, word, arrow);
}

export function nodeText(s, node) { return node ? `${node} ${s.answer ? s.answer.words[node - 1] : s.words[node - 1]}` : 'the root'; }

export function leastCertain(s) {
  if (!s?.answer?.confidence) return 0;
  let found = 0, least = 0.9995;
  s.answer.confidence.forEach((sure, i) => {
    if (sure < least && !(i + 1 in s.required)) { least = sure; found = i + 1; }
  });
  return found;
}

const nodeAt = (event) => Number(event.target.closest?.('.w')?.dataset.i ?? -1);

box.addEventListener('click', (event) => {
  const node = nodeAt(event), arc = event.target.closest?.('.a');
  if (node > 0) {
    if (pick.word && pick.word !== node) give(node);
    else choose(pick.word === node ? 0 : node);
  } else if (arc) {
    const word = Number(arc.dataset.m);
    choose(word);
    document.getElementById('panel').scrollIntoView({ block: 'nearest' });
  } else choose(0);
});
box.addEventListener('pointermove', (event) => {
  const node = event.pointerType === 'touch' ? -1 : nodeAt(event);
  if (node !== over) { over = node; mark(); }
});
box.addEventListener('pointerleave', () => { if (over >= 0) { over = -1; mark(); } });

