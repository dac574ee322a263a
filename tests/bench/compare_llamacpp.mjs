// Helios beside llama.cpp on the same random weights: prefill of 128 and 512 tokens, decode at batch 1, 4 and 16.
//
//   node tests/bench/compare_llamacpp.mjs --bench build/release/bin/helios-bench [--runs 10] [--threads 2]
//       [--dtype D]         passed on to helios-bench: what products round their inputs to (auto: nothing)
//       [--directory DIR]   where model, GGUF file and llama.cpp are kept; a temporary one, removed again, by default
//       [--log FILE]        a line is appended for each run, and the table is of the whole file: a long comparison can
//                           be made of short invocations, and one that was cut off goes on where it stopped
//
// A run is one process: Helios with all threads in one rank, or llama.cpp, in turn. Two runs are a round, every second
// round begins with llama.cpp, and ratios are within rounds. Each process does everything once to warm up and is timed
// the second time. llama.cpp is the prebuilt CPU library from the npm package node-llama-cpp,
// its batches called directly: its figures hold what llama_decode takes, logits included; Helios's hold choosing the
// token, too. Both decode 16 steps after a context of 64 tokens a sequence, with BF16 weights; llama.cpp's KV cache is
// F16 and its activations BF16, Helios's both FP32 unless --dtype rounds them. The limits are those that helios-bench
// finds; ranks beside one process are its --paired.
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const kPackage = 'node-llama-cpp@3.21.1';
const kSteps = 16, kContext = 64, kChunk = 512;
const kWork = [['prefill', 128], ['prefill', 512], ['decode', 1], ['decode', 4], ['decode', 16]];
const kEngines = ['helios', 'llama'];
const kUsage = 'usage: compare_llamacpp.mjs --bench HELIOS_BENCH [--runs N] [--threads 1|2|4|8] [--dtype D] ' +
  '[--directory DIR] [--log FILE]';
const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '../..');

function refuse(message) {
  console.error(`compare_llamacpp.mjs: ${message}\n${kUsage}`);
  process.exit(2);
}

function parse() {
  try {
    return parseArgs({
      options: {
        bench: { type: 'string' },
        runs: { type: 'string', default: '10' },
        threads: { type: 'string', default: '2' },
        dtype: { type: 'string', default: 'auto' },
        directory: { type: 'string' },
        log: { type: 'string' },
        help: { type: 'boolean', default: false },
        llama: { type: 'boolean', default: false },  // this process is a run of llama.cpp
      },
    }).values;
  } catch (error) {
    return refuse(error.message);
  }
}

const flags = parse();
const runs = Number(flags.runs), threads = Number(flags.threads);

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

// Most bytes ever resident in this process.
const peakBytes = () => process.resourceUsage().maxRSS * 1024;

/** One llama_decode: each lane is [sequence, position, tokens], with logits for its last token. */
async function step(context, lanes) {
  context.initBatch(lanes.reduce((sum, lane) => sum + lane[2].length, 0));
  for (const [sequence, position, ids] of lanes) {
    context.addToBatch(sequence, position, ids, Uint32Array.of(ids.length - 1));
  }
  await context.decodeBatch();
}

async function llama(directory) {
  const entry = path.join(directory, 'node_modules/node-llama-cpp/dist/index.js');
  const { getLlama, LlamaLogLevel } = await import(pathToFileURL(entry).href);
  const library = await getLlama({ gpu: false, build: 'never', logLevel: LlamaLogLevel.error });
  const withoutModel = peakBytes();
  const model = await library.loadModel({ modelPath: path.join(directory, 'model.gguf') });
  const vocabulary = JSON.parse(fs.readFileSync(path.join(directory, 'model/config.json'))).vocab_size;
  const tokens = (count, salt) =>
    Uint32Array.from({ length: count }, (_, i) => 300 + (i * 7919 + salt * 104729) % (vocabulary - 300));
  const rates = [];
  for (const [kind, size] of kWork) {  // a context of its own for each: none pays for another's cells or memory
    const sequences = kind === 'prefill' ? 1 : size;
    const context = new library._bindings.AddonContext(model._model, {
      contextSize: kind === 'prefill' ? kChunk : 128 * size, batchSize: kind === 'prefill' ? kChunk : kContext,
      sequences, threads, flashAttention: 'auto' });
    if (!await context.init()) throw new Error('llama.cpp made no context');
    context.setThreads(threads);
    for (let s = 0; kind === 'decode' && s < size; ++s) await step(context, [[s, 0, tokens(kContext, s)]]);
    let seconds = 0;
    for (let time = 0; time < 2; ++time) {
      if (kind === 'prefill') context.disposeSequence(0);
      else for (let s = 0; s < size; ++s) context.removeTokenCellsFromSequence(s, kContext, 128);
      const start = performance.now();
      if (kind === 'prefill') await step(context, [[0, 0, tokens(size, 1)]]);
      for (let i = 0; kind === 'decode' && i < kSteps; ++i) {
        await step(context, Array.from({ length: size }, (_, s) => [s, kContext + i, tokens(1, s + i)]));
      }
      seconds = (performance.now() - start) / 1000;  // the first warmed up
    }
    rates.push((kind === 'prefill' ? size : size * kSteps) / seconds);
    await context.dispose();
  }
  console.log(JSON.stringify({ rates, peak: peakBytes(), withoutModel }));
  process.exit(0);
}

const run = (command, args) => new Promise((resolve, reject) => {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  let out = '';
  child.stdout.on('data', (data) => { out += data; });
  child.on('error', reject);
  child.on('close', (code) => code === 0 ? resolve(out) : reject(new Error(`${command} ended with ${code}`)));
});

async function helios(model) {
  const out = await run(path.resolve(flags.bench), ['--model', model, '--threads', `${threads}`,
    '--dtype', flags.dtype, '--rounds', '1', '--plain', '--json']);
  const lines = out.trim().split('\n').map((line) => JSON.parse(line));
  const figures = kWork.map(([kind, size]) =>
    lines.find((line) => line.work === kind && (kind === 'prefill' ? line.tokens : line.batch) === size));
  return {
    rates: figures.map((figure) => figure.tokens_per_s),
    bandwidth: figures.map((figure) => figure.share_of_bandwidth),
    fma: figures.map((figure) => figure.share_of_fma),
    limits: [figures[0].read_gb_per_s, figures[0].fma_gflop_per_s],
    peak: figures[0].peak_bytes_all_ranks,
    weights: figures[0].weights_bytes,
    cache: figures[0].kv_cache_bytes,
  };
}

function measure(engine, directory) {
  if (engine === 'helios') return helios(path.join(directory, 'model'));
  return run(process.execPath, [fileURLToPath(import.meta.url), '--llama', '--threads', `${threads}`,
    '--directory', directory]).then(JSON.parse);
}

function prepare(directory) {
  const model = path.join(directory, 'model'), gguf = path.join(directory, 'model.gguf');
  fs.mkdirSync(directory, { recursive: true });
  if (!fs.existsSync(model)) execFileSync('python3', [path.join(root, 'deploy/make_bench_model.py'), model]);
  if (!fs.existsSync(gguf)) execFileSync('python3', [path.join(root, 'deploy/make_bench_gguf.py'), model, gguf]);
  if (!fs.existsSync(path.join(directory, 'node_modules/node-llama-cpp'))) {
    execFileSync('npm', ['install', '--prefix', directory, '--ignore-scripts', '--no-audit', '--no-fund', kPackage],
      { stdio: ['ignore', 'ignore', 'inherit'] });
  }
}

/** Whose turn the run with this number is: rounds begin with each engine in turn. */
const engineOf = (number) => kEngines[(Math.floor(number / kEngines.length) + number) % kEngines.length];

function readLog() {
  const lines = flags.log && fs.existsSync(flags.log) ? fs.readFileSync(flags.log, 'utf8').trim() : '';
  const done = lines === '' ? [] : lines.split('\n').map((line) => JSON.parse(line));
  done.forEach((line, i) => {
    if (line.engine !== engineOf(i) || line.threads !== threads || line.dtype !== flags.dtype ||
        line.cpu !== os.cpus()[0].model) {
      refuse(`${flags.log}: line ${i + 1} is no such run of ${engineOf(i)} with ${threads} threads and --dtype ` +
        `${flags.dtype} on this machine`);
    }
  });
  return done;
}

/** Complete rounds, each {helios, llama}. */
function roundsOf(done) {
  const rounds = [];
  for (let i = 0; i + kEngines.length <= done.length; i += kEngines.length) {
    rounds.push(Object.fromEntries(done.slice(i, i + kEngines.length).map((line) => [line.engine, line])));
  }
  return rounds;
}

function report(done) {
  const rounds = roundsOf(done);
  if (rounds.length === 0) return console.log('no complete round yet');
  const of = (pick) => median(rounds.map(pick));
  const spread = (pick) => {
    const ratios = rounds.map(pick);
    return [median(ratios), Math.min(...ratios), Math.max(...ratios)].map((ratio) => ratio.toFixed(2));
  };
  console.log(`${os.cpus()[0].model}: ${threads} threads each, --dtype ${flags.dtype}, ${kPackage}, medians of ` +
    `${rounds.length} rounds`);
  console.log(`limits: ${of((r) => r.helios.limits[0]).toFixed(1)} GB/s read, ` +
    `${of((r) => r.helios.limits[1]).toFixed(0)} GFLOP/s FP32 FMA; load average before the runs ` +
    `${done.map((line) => line.load.toFixed(1)).join(' ')}\n`);
  console.log('work         tokens/s  of bandwidth  of FMA   llama.cpp: tokens/s  Helios to it');
  kWork.forEach(([kind, size], i) => {
    const [peer, low, high] = spread((r) => r.helios.rates[i] / r.llama.rates[i]);
    const cell = (pick, digits, width) => of(pick).toFixed(digits).padStart(width);
    console.log([`${kind} ${size}`.padEnd(11), cell((r) => r.helios.rates[i], 1, 9),
      cell((r) => r.helios.bandwidth[i], 2, 13), cell((r) => r.helios.fma[i], 2, 7),
      cell((r) => r.llama.rates[i], 1, 21), ` ${peer} (${low} to ${high})`].join(' '));
  });
  const mb = (pick) => Math.round(of(pick) / 1e6);
  console.log(`\npeak memory, MB: Helios ${mb((r) => r.helios.peak)} (weights ${mb((r) => r.helios.weights)}, ` +
    `KV cache ${mb((r) => r.helios.cache)}); llama.cpp ${mb((r) => r.llama.peak)}, of which ` +
    `${mb((r) => r.llama.withoutModel)} are Node.js without a model`);
}

async function compare() {
  if (flags.help) return console.log(kUsage);
  if (!flags.bench) refuse('--bench is missing');
  if (!Number.isInteger(runs) || runs < 0) refuse(`--runs: expected a number, found ${flags.runs}`);
  if (![1, 2, 4, 8].includes(threads)) refuse(`--threads: expected 1, 2, 4 or 8, found ${flags.threads}`);
  const done = readLog();
  const directory = path.resolve(flags.directory ?? fs.mkdtempSync(path.join(os.tmpdir(), 'helios-compare-')));
  try {
    if (runs > 0) prepare(directory);
    for (let i = 0; i < runs; ++i) {
      const engine = engineOf(done.length), load = os.loadavg()[0];
      const line = { engine, threads, dtype: flags.dtype, cpu: os.cpus()[0].model, load,
        ...await measure(engine, directory) };
      done.push(line);
      if (flags.log) fs.appendFileSync(flags.log, `${JSON.stringify(line)}\n`);
      console.error(`run ${done.length}, ${engine}: ${line.rates.map((rate) => rate.toFixed(1)).join(' ')} tokens/s`);
    }
    report(done);
  } finally {
    if (!flags.directory) fs.rmSync(directory, { recursive: true });
  }
}

await (flags.llama ? llama(path.resolve(flags.directory)) : compare());
