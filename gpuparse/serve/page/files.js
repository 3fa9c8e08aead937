// Files: opened by people, and exported for them.

import { ask, conllu, current } from './work.js';

const MOST = 4_000_000;  // bytes, what a server takes unless told otherwise

export async function readFile(file) {
  if (file.size > MOST) throw new Error(`${file.name} has more than ${MOST / 1e6} MB.`);
  return file.text();
}

function offer(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function standalone() {
  const s = current();
  if (!s?.answer?.conllu) throw new Error('There is no tree yet.');
  return (await ask('/api/svg', { conllu: s.answer.conllu })).text();
}

export async function save(kind) {
  if (kind === 'conllu') offer(new Blob([await conllu()], { type: 'text/plain' }), 'trees.conllu');
  else if (kind === 'svg') offer(new Blob([await standalone()], { type: 'image/svg+xml' }), 'tree.svg');
  else offer(await png(await standalone()), 'tree.png');
}

async function png(svg) {
  const source = URL.createObjectURL(new Blob([svg], { type: 'image/svg+xml' }));
  try {
    const image = new Image();
    image.src = source;
    await image.decode();
    const scale = Math.min(3, 16_000 / image.naturalWidth, 16_000 / image.naturalHeight);
    const canvas = document.createElement('canvas');
    canvas.width = Math.round(scale * image.naturalWidth);
    canvas.height = Math.round(scale * image.naturalHeight);
    const pen = canvas.getContext('2d');
    pen.fillStyle = '#fff';
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((done, fail) => {
      canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error('The picture could not be made.'))), 'image/png');
    });
  } finally {
    URL.revokeObjectURL(source);
  }
}
