// What is being worked on: sentences, what was decided about them, undo and redo, autosave, and asking the server.

const KEPT = 'gpuparse.page';
const CHUNK = 16;  // sentences of a request in the background
const PAUSE = 120;  // milliseconds until the best trees are asked for
export const work = { sentences: [], current: 0, constraints: [], projective: null, model: null };
const past = [], future = [];
const listeners = [];
let saving = 0, saveFailed = false, background = 0;

export function listen(on) { listeners.push(on); }
function tell(what) { for (const on of listeners) on(what); }
export function current() { return work.sentences[work.current]; }

export async function ask(path, body, signal) {
  const options = body === undefined ? { signal } : {
    method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body), signal,
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Error('The server does not answer.');
  }
  if (answer.ok) return answer;
  let detail = `The server says ${answer.status}.`;
  try { detail = String((await answer.json()).detail || detail); } catch { /* no more is known */ }
  throw new Error(detail);
}

// A sentence ---------------------------------------------------------------------------------------------------------

function made(read, keep) {
  const sentence = { conllu: read.conllu, words: read.words, text: read.text, id: read.sent_id, required: {}, forbidden: [], labels: {} };
  if (keep) {
    read.heads.forEach((head, i) => { if (head !== null) sentence.required[i + 1] = head; });
    read.deprels.forEach((label, i) => { if (label !== null) sentence.labels[i + 1] = label; });
  }
  return sentence;
}

const decisions = (s) => JSON.stringify({ required: s.required, forbidden: s.forbidden, labels: s.labels, conllu: s.conllu });

export function count(s) { return Object.keys(s.required).length + s.forbidden.length + Object.keys(s.labels).length; }
export function isForbidden(s, head, word) { return s.forbidden.some(([h, w]) => h === head && w === word); }

export async function open(text, { keep, add }) {
  const isConllu = /^\d+(-\d+)?\t[^\t]+\t/m.test(text);
  const { sentences } = await (await ask('/api/read', isConllu ? { conllu: text } : { text })).json();
  if (!sentences.length) throw new Error('There are no words in it.');
  const some = sentences.map((read) => made(read, keep && isConllu));
  past.length = future.length = 0;
  if (!add) work.sentences = [];
  const first = work.sentences.length;
  work.sentences.push(...some);
  show(first);
  tell('all');
  fill();
}

// Decisions ----------------------------------------------------------------------------------------------------------

export function decide(change, said = '') {
  const s = current();
  if (!s) return;
  const before = decisions(s);
  change(s);
  const after = decisions(s);
  if (before === after) return;
  past.push({ index: work.current, before, after });
  future.length = 0;
  solve(work.current, said);
}

export function setOption(name, value) {
  const before = work[name];
  past.push({ option: name, before, after: value });
  future.length = 0;
  apply(name, value);
}

function apply(name, value) {
  work[name] = value;
  for (const s of work.sentences) s.stale = true;
  solve(work.current);
}

export const canUndo = () => past.length > 0, canRedo = () => future.length > 0;
export function undo() { step(past, future, 'before', 'Undone'); }
export function redo() { step(future, past, 'after', 'Done again'); }

function step(from, to, side, said) {
  const entry = from.pop();
  if (!entry) return;
  to.push(entry);
  if (entry.option) { apply(entry.option, entry[side]); return; }
  Object.assign(work.sentences[entry.index], JSON.parse(entry[side]));
  if (entry.index !== work.current) show(entry.index, true);
  solve(entry.index, said);
}

export function require(head, word, said) {
  decide((s) => {
    s.required[word] = head;
    s.forbidden = s.forbidden.filter(([h, w]) => !(h === head && w === word));
  }, said);
}
export function forbid(head, word) {
  decide((s) => {
    if (s.required[word] === head) delete s.required[word];
    if (!isForbidden(s, head, word)) s.forbidden.push([head, word]);
  });
}
export function allow(head, word) {
  decide((s) => { s.forbidden = s.forbidden.filter(([h, w]) => !(h === head && w === word)); });
}
export function name(word, label) { decide((s) => { if (label) s.labels[word] = label; else delete s.labels[word]; }); }
export function release(word) { decide((s) => { delete s.required[word]; }); }
export function clear(word) {
  decide((s) => {
    delete s.required[word];
    delete s.labels[word];
    s.forbidden = s.forbidden.filter(([, w]) => w !== word);
  });
}
export function retag(word, tag) {
  decide((s) => {
    s.conllu = s.conllu.split('\n').map((line) => {
      const fields = line.split('\t');
      if (fields[0] === String(word)) fields[3] = tag;
      return fields.join('\t');
    }).join('\n');
  });
}

// Solving ------------------------------------------------------------------------------------------------------------

const asked = (s) => ({
  conllu: s.conllu,
  required: Object.entries(s.required).map(([word, head]) => [head, Number(word)]),
  forbidden: s.forbidden,
  labels: s.labels,
});

function options(more) {
  return { constraints: work.constraints, projective: work.projective, ...more };
}

export async function solve(index, said = '') {
  const s = work.sentences[index];
  s.asking?.abort();
  const asking = s.asking = new AbortController();
  s.stale = true;
  tell('busy');
  save();
  try {
    const body = options({ sentences: [asked(s)], svg: true, marginals: true, with_conllu: true });
    const answer = await (await ask('/api/parse', body, asking.signal)).json();
    if (asking.signal.aborted) return;
    take(s, answer.sentences[0], said);
  } catch (error) {
    if (error.name === 'AbortError') return;
    if (!s.answer) await bare(s, asking.signal);
    s.error = error.message;
    s.said = '';
    s.changed = new Set();
    s.asking = null;
  }
  tell(index === work.current ? 'solved' : 'list');
  if (index === work.current) best(s);
}

// The tree as if nothing were decided: there has to be one on which decisions can be taken back.
async function bare(s, signal) {
  try {
    const body = { sentences: [{ conllu: s.conllu }], svg: true, marginals: true, with_conllu: true };
    take(s, (await (await ask('/api/parse', body, signal)).json()).sentences[0], '');
  } catch { /* what is wrong is said already */ }
}

function take(s, found, said) {
  const before = s.answer;
  s.changed = new Set();
  if (before) {
    found.heads.forEach((head, i) => {
      if (head !== before.heads[i] || found.deprels[i] !== before.deprels[i]) s.changed.add(i + 1);
    });
  }
  s.said = said;
  s.answer = found;
  s.alternatives = null;
  s.error = null;
  s.stale = false;
  s.asking = null;
}

let bestOf = null;
async function best(s) {
  bestOf?.abort();
  bestOf = new AbortController();
  const signal = bestOf.signal;
  await new Promise((done) => { setTimeout(done, PAUSE); });  // what was clicked is drawn first
  if (signal.aborted || s !== current()) return;
  try {
    const body = { sentences: [asked(s)], nbest: 6, probabilities: false, projective: work.projective };
    const answer = await (await ask('/api/parse', body, signal)).json();
    if (signal.aborted || s !== current()) return;
    s.alternatives = answer.sentences[0].alternatives;
  } catch (error) {
    if (error.name === 'AbortError') return;
    s.alternatives = [];
  }
  tell('best');
}

// The rest, while nobody waits: so that the list can say how certain each sentence is.
async function fill() {
  const run = ++background;
  while (run === background) {
    const some = work.sentences.filter((s) => !s.answer && !s.error && !s.asking).slice(0, CHUNK);
    if (!some.length) return;
    await parseSome(some);
    tell('list');
  }
}

async function parseSome(some) {
  try {
    const body = options({ sentences: some.map(asked), svg: false, with_conllu: true });
    const answer = await (await ask('/api/parse', body)).json();
    answer.sentences.forEach((found, i) => { if (!some[i].asking) take(some[i], found, ''); });
  } catch (error) {
    if (some.length === 1) { some[0].error = error.message; return; }
    for (const s of some) await parseSome([s]);
  }
}

// All sentences as CoNLL-U, parsed where they have not been.
export async function conllu() {
  const old = work.sentences.filter((s) => !s.answer || s.stale);
  for (let i = 0; i < old.length; i += CHUNK) await parseSome(old.slice(i, i + CHUNK));
  return work.sentences.map((s) => `${(s.answer && !s.stale ? s.answer.conllu : s.conllu).trimEnd()}\n\n`).join('');
}

export function show(index, quiet = false) {
  work.current = Math.min(Math.max(index, 0), work.sentences.length - 1);
  const s = current();
  if (!s) return;
  s.changed = new Set();
  save();
  tell('sentence');
  if (quiet) return;
  if (!s.answer?.svg || s.stale) solve(work.current);
  else best(s);
}

// Kept in the browser --------------------------------------------------------------------------------------------------

function save() {
  clearTimeout(saving);
  saving = setTimeout(write, 200);
}

function write() {
  clearTimeout(saving);
  saving = 0;
  const kept = work.sentences.map(({ conllu, words, text, id, required, forbidden, labels }) => (
    { conllu, words, text, id, required, forbidden, labels }));
  const { current: place, constraints, projective } = work;
  try {
    localStorage.setItem(KEPT, JSON.stringify({ sentences: kept, place, constraints, projective }));
    saveFailed = false;
  } catch {
    if (!saveFailed) tell('unsaved');
    saveFailed = true;
  }
}
addEventListener('pagehide', () => { if (saving) write(); });

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const isWhole = (s) => isObject(s) && typeof s.conllu === 'string' && typeof s.text === 'string' && Array.isArray(s.words)
  && isObject(s.required) && Array.isArray(s.forbidden) && isObject(s.labels);

export async function begin() {
  work.model = await (await ask('/api/model')).json();
  let kept = null;
  try { kept = JSON.parse(localStorage.getItem(KEPT)); } catch { /* not ours, or none */ }
  tell('model');
  if (!isObject(kept) || !Array.isArray(kept.sentences) || !kept.sentences.length || !kept.sentences.every(isWhole)) {
    tell('all');
    return;
  }
  work.sentences = kept.sentences;
  const known = Array.isArray(kept.constraints) ? kept.constraints : [];
  work.constraints = work.model.constraints.filter((one) => known.includes(one));
  work.projective = kept.projective === true ? true : null;
  show(Number(kept.place) || 0);
  tell('all');
  fill();
}
