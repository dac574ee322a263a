// Our tokenizer beside the Hugging Face library (Rust, its package for Node): milliseconds for the same texts in the
// same run, one core each, and whether the ids agree.
//
//   node tests/bench/tokenizer_bench.mjs DIR...    each DIR holds tokenizer.json (or tokenizer.json.xz) of one model
//
// HELIOS_BIN names the folder of helios-tokenizer-bench. Exits 1 when ids differ.
import { execFileSync, spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';

const { Tokenizer } = createRequire(new URL('../cluster/openai/package.json', import.meta.url))('@anush008/tokenizers');
const root = new URL('../..', import.meta.url).pathname;
const bin = process.env.HELIOS_BIN ?? path.join(root, 'build/release/bin');
const rounds = Number(process.env.ROUNDS ?? 3);

/** The same numbers every time: Marsaglia's xorshift. */
function random(seed) {
  let x = seed;
  return (n) => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return (x >>> 0) % n;
  };
}

function grow(bytes, piece) {
  const parts = [];
  for (let size = 0; size < bytes;) {
    const part = piece();
    parts.push(part);
    size += Buffer.byteLength(part);
  }
  return parts.join('');
}

function prose(bytes) {
  const next = random(1);
  const words = fs.readFileSync(path.join(root, 'README.md'), 'utf8').match(/[A-Za-z']+/g);
  return grow(bytes, () => {
    const sentence = Array.from({ length: 5 + next(14) }, () => words[next(words.length)]).join(' ');
    return sentence + ['. ', ', ', '? ', '! ', '.\n', '.\n\n'][next(6)];
  });
}

function code(bytes) {
  const files = execFileSync('git', ['-C', root, 'ls-files', '*.cc', '*.h', '*.py', '*.mjs'], { encoding: 'utf8' }).trim().split('\n');
  let at = 0;
  return grow(bytes, () => fs.readFileSync(path.join(root, files[at++ % files.length]), 'utf8'));
}

function cjk(bytes) {
  const next = random(2);
  const ranges = [[0x4e00, 0x5200], [0x3041, 0x56], [0x30a1, 0x56], [0xac00, 0x2ba4]];
  return grow(bytes, () => {
    const [first, count] = ranges[next(8) < 5 ? 0 : 1 + next(3)];
    const run = Array.from({ length: 2 + next(12) }, () => String.fromCodePoint(first + next(count))).join('');
    return run + ['，', '。', '、', '！', ' ', '\n'][next(6)];
  });
}

function accents(bytes) {
  const next = random(3);
  const pieces = ['naïve ', 'Ångström ', 'cafe\u0301 ', 'Việt Nam ', '👨‍👩‍👧 ', '🧎🏽‍♀️', 'Ελληνικά ', 'русский ', 'עברית ', 'ไทย', 'हिन्दी ', '½€™'];
  return grow(bytes, () => pieces[next(pieces.length)]);
}

const million = 1_000_000;
const texts = {
  'prose, code, CJK': [prose, code, cjk].map((make) => make(million / 3)).join('\n'),
  prose: prose(million),
  code: code(million),
  CJK: cjk(million),
  'accents, emoji': accents(million),
  '100,000 x "a"': 'a'.repeat(100_000),
  '100,000 digits': grow(100_000, (() => {
    const next = random(4);
    return () => String(next(10));
  })()),
  '100,000 spaces': ' '.repeat(100_000),
  '100,000 line breaks': '\n'.repeat(100_000),
  '100,000 x " \\n"': ' \n'.repeat(50_000),
  '100,000 x "é"': 'é'.repeat(50_000),
  '100,000 x U+0301': 'a' + '\u0301'.repeat(50_000),
  'no spaces, random letters': grow(100_000, (() => {
    const next = random(5);
    return () => String.fromCharCode(97 + next(26));
  })()),
};

function digest(ids) {
  let hash = 2166136261;
  for (const id of ids) hash = Math.imul(hash ^ id, 16777619);
  return hash >>> 0;
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tokenizer-bench-'));
let differ = 0;
try {
  const files = Object.entries(texts).map(([name, text], i) => {
    const file = path.join(folder, `${i}.txt`);
    fs.writeFileSync(file, text);
    return { name, text, file };
  });
  for (const dir of process.argv.slice(2)) {
    const json = path.join(folder, 'tokenizer.json');
    if (fs.existsSync(path.join(dir, 'tokenizer.json'))) {
      fs.copyFileSync(path.join(dir, 'tokenizer.json'), json);
    } else {
      fs.writeFileSync(json, execFileSync('xz', ['-dkc', path.join(dir, 'tokenizer.json.xz')], { maxBuffer: 1 << 28 }));
    }
    const ours = spawnSync(path.join(bin, 'helios-tokenizer-bench'), [folder, String(rounds), ...files.map(({ file }) => file)],
      { encoding: 'utf8', maxBuffer: 1 << 26 });
    if (ours.status !== 0) throw new Error(ours.stderr);
    const lines = ours.stdout.trim().split('\n').map(JSON.parse);
    const native = Tokenizer.fromFile(json);
    console.log(`\n${path.basename(dir)} (loaded in ${lines[0].load_ms} ms)`);
    console.log(`${'text'.padEnd(28)}${'bytes'.padStart(9)}${'tokens'.padStart(9)}${'ours ms'.padStart(10)}${'native ms'.padStart(11)}`);
    for (const [i, { name, text }] of files.entries()) {
      const times = [];
      let ids;
      for (let round = 0; round < rounds; ++round) {
        const begin = performance.now();
        const encoding = await native.encode(text, null, { addSpecialTokens: false });
        times.push(performance.now() - begin);
        ids = encoding.getIds();
        if (times[0] > 3000) break;
      }
      times.sort((a, b) => a - b);
      const line = lines[i + 1];
      const same = digest(ids) === line.digest;
      if (!same) ++differ;
      console.log(name.padEnd(28) + String(line.bytes).padStart(9) + String(line.tokens).padStart(9) +
        line.median_ms.toFixed(1).padStart(10) + times[times.length >> 1].toFixed(1).padStart(11) + (same ? '' : '  IDS DIFFER'));
    }
  }
} finally {
  fs.rmSync(folder, { recursive: true });
}
process.exit(differ ? 1 : 0);
