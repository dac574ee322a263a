#!/usr/bin/env node
// Measures a server through HTTP, with real ranks on loopback: what scoring costs, what serving costs beside the engine
// alone, and what a long prompt costs those who are reading. See `--help`.
import { execFileSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { Cluster, bin, children, demo, sleep } from '../cluster/openai/support.mjs';
import { exchange, stream } from './http_client.mjs';
import { coordinatorOf, cpuOf } from './process_cost.mjs';

const help = `http_bench.mjs scored|overhead|cpu|gap [flags] [-- FLAGS OF helios-launch]

  scored     prompts of 128, 512 and 2048 tokens: scored throughput over ordinary prefill's, with 0 and 20 alternatives
  overhead   decode through the server over the engine alone (helios-bench in the same run), at batch 1 and 16
  cpu        the coordinator's processor time for a streamed token
  gap        the time between tokens of running streams, without and with a long prompt beside them

  --model DIR     as deploy/make_bench_model.py writes it; cpu: the demo model unless given
  --nproc N       ranks (1)
  --threads N     compute threads a rank (this machine's cores / nproc)
  --rounds N      each figure is the median of so many (3)
  --smoke         small sizes, on the demo model: shows that all of this still works, not how fast
`;

const { values: flags, positionals: [name, ...launchFlags] } = parseArgs({
  allowPositionals: true,
  options: {
    model: { type: 'string' }, nproc: { type: 'string', default: '1' }, threads: { type: 'string' },
    rounds: { type: 'string', default: '3' }, smoke: { type: 'boolean', default: false }, help: { type: 'boolean' },
  },
});
const rounds = flags.smoke ? 1 : Number(flags.rounds);
const nproc = Number(flags.nproc);

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};
const quantile = (values, q) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(q * values.length))];
const ms = (seconds) => (seconds * 1000).toFixed(seconds < 0.1 ? 2 : 0);
function print(...cells) {
  console.log(cells.map((cell, i) => (i ? String(cell).padStart(13) : String(cell).padEnd(28))).join(' '));
}

async function serve(args = [], otherwise = undefined) {
  const model = flags.smoke ? demo : (flags.model ?? otherwise);
  if (!model) throw new Error('--model DIR is missing: deploy/make_bench_model.py DIR makes one');
  const threads = flags.threads ? ['--threads-per-rank', flags.threads] : [];
  const cluster = await Cluster.start({ model, nproc, args: [...threads, '--log-level', 'warning', ...args, ...launchFlags] });
  cluster.coordinator = coordinatorOf(children(cluster.process.pid));
  const { data } = (await cluster.get('/v1/models')).json();
  console.log(`${model}: ${nproc} rank${nproc > 1 ? 's' : ''}, medians of ${rounds} round${rounds > 1 ? 's' : ''}, context ${data[0].max_model_len}`);
  return cluster;
}

/** Prompts nobody has seen: ids that a linear congruential generator draws. */
let state = 1;
function prompt(length) {
  const ids = [];
  for (let i = 0; i < length; ++i) ids.push(300 + ((state = (state * 48271) % 2147483647) % 1200));
  return ids;
}
const greedy = { temperature: 0, ignore_eos: true };

async function scored() {
  const args = ['--prefix-cache', 'off', '--max-num-seqs', '16', '--max-model-len', '2048', '--kv-cache-tokens', '4096'];
  const plain = await serve(args);
  const without = await plain.ranks();
  await plain.stop();
  const cluster = await serve(['--prompt-logprobs', ...args]);
  const lengths = flags.smoke ? [32] : [128, 512, 2048 - 1];
  const cases = [['ordinary', {}], ['scored, K = 0', { echo: true, logprobs: 0 }], ['scored, K = 20', { echo: true, logprobs: 20 }]];
  const run = async (length, extra) => (await exchange(cluster.url, '/v1/completions', { prompt: prompt(length), max_tokens: 1, ...greedy, ...extra })).seconds;
  await run(lengths[0], {});
  await run(lengths[0], cases[2][1]);
  print('prompt tokens', ...cases.map(([name]) => name), 'ratio, K = 0', 'ratio, K = 20');
  for (const length of lengths) {
    const seconds = cases.map(() => []);
    for (let round = 0; round < rounds; ++round) {  // back and forth, so that none always follows the same other
      const order = round % 2 ? [2, 1, 0] : [0, 1, 2];
      for (const i of order) seconds[i].push(await run(length, cases[i][1]));
    }
    const rates = seconds.map((list) => length / median(list));
    print(length, ...rates.map((r) => `${r.toFixed(1)} /s`), ...[1, 2].map((i) => (rates[i] / rates[0]).toFixed(3)));
  }
  for (const rank of await cluster.ranks()) {
    const more = Object.entries(rank.memory).map(([name, bytes]) => `${name} +${((bytes - without[rank.rank].memory[name]) / 2 ** 20).toFixed(1)} MiB`);
    console.log(`rank ${rank.rank} reports for --prompt-logprobs: ${more.join(', ')}`);
  }
  await cluster.stop();
}

/** Tokens a second of `batch` streams side by side, over steps in which all of them are there. */
async function decodeRate(cluster, batch, logprobs) {
  const steps = flags.smoke ? 4 : 16, context = flags.smoke ? 8 : 64;  // as helios-bench
  const body = { max_tokens: steps + 12, ...greedy, ...(logprobs ? { logprobs } : {}) };
  const all = await Promise.all(Array.from({ length: batch }, () => stream(cluster.url, '/v1/completions', { prompt: prompt(context), ...body })));
  const last = all.reduce((a, b) => (b.times[0] > a.times[0] ? b : a)).times;
  if (last[steps] > Math.min(...all.map(({ times }) => times.at(-1)))) throw new Error('a stream ended before the last had begun');
  return (batch * steps) / (last[steps] - last[0]);
}

async function overhead() {
  const cluster = await serve(['--prefix-cache', 'off', '--max-num-seqs', '16', '--max-model-len', '2048', '--kv-cache-tokens', '4096']);
  const model = flags.smoke ? demo : flags.model;
  const cases = [1, 16].flatMap((batch) => [0, 20].map((logprobs) => ({ batch, logprobs, alone: [], served: [] })));
  for (let round = 0; round < rounds; ++round) {
    const threads = flags.threads ? ['--threads', flags.threads] : [];
    const figures = execFileSync(`${bin}/helios-bench`, ['--model', model, '--nproc', flags.nproc, ...threads, '--rounds', '1', '--json'], { encoding: 'utf8' })
      .trim().split('\n').map((line) => JSON.parse(line));
    for (const c of cases) {
      c.alone.push(figures.find((f) => f.work === 'decode' && f.sampling === 'greedy' && f.batch === c.batch && f.logprobs === c.logprobs).tokens_per_s);
      c.served.push(await decodeRate(cluster, c.batch, c.logprobs));
    }
  }
  print('decode', 'alone', 'served', 'ratio', 'lowest', 'highest');  // of neighbours in time: a shared machine's pace changes
  for (const { batch, logprobs, alone, served } of cases) {
    print(`batch ${batch}, ${logprobs} alternatives`, `${median(alone).toFixed(2)} /s`, `${median(served).toFixed(2)} /s`, ...((ratios) => [median(ratios), Math.min(...ratios), Math.max(...ratios)].map((r) => r.toFixed(3)))(served.map((s, i) => s / alone[i])));
  }
  await cluster.stop();
}

async function cpu() {
  const cluster = await serve(['--max-num-seqs', '16'], demo);
  const length = flags.smoke ? 20 : 1500;
  print('coordinator, us a token', 'all', 'user', 'kernel', 'tokens/s', 'bytes/token');
  for (const batch of [1, 16]) {
    for (const logprobs of [0, 20]) {
      const figures = [];
      for (let round = -1; round < rounds; ++round) {  // the first warms up
        const body = { max_tokens: length, temperature: 1, ignore_eos: true, ...(logprobs ? { logprobs } : {}) };
        const before = cpuOf(cluster.coordinator), start = performance.now();
        const all = await Promise.all(Array.from({ length: batch }, (_, seed) => stream(cluster.url, '/v1/completions', { prompt: prompt(16), seed, ...body })));
        const after = cpuOf(cluster.coordinator), tokens = all.reduce((n, { times }) => n + times.length, 0);
        if (tokens !== batch * length) throw new Error(`${tokens} tokens came, expected ${batch * length}`);
        const us = (key) => ((after[key] - before[key]) * 1e6) / tokens;
        if (round >= 0) figures.push([us('all'), us('user'), us('kernel'), tokens / ((performance.now() - start) / 1000), all.reduce((n, s) => n + s.bytes, 0) / tokens]);
      }
      print(`batch ${batch}, ${logprobs} alternatives`, ...figures[0].map((_, i) => median(figures.map((f) => f[i])).toFixed(1)));
    }
  }
  await cluster.stop();
}

/** The gaps of every stream that end in (from, to]. */
const gapsWithin = (streams, from, to) =>
  streams.flatMap(({ times }) => times.slice(1).map((time, i) => [time, time - times[i]]).filter(([time]) => time > from && time <= to).map(([, gap]) => gap));

async function gap() {
  const cluster = await serve(['--prefix-cache', 'off', '--prompt-logprobs', '--max-num-seqs', '16', '--max-model-len', '2048', '--kv-cache-tokens', '8192']);
  const batch = 8, length = flags.smoke ? 200 : 1800;
  const kinds = [['ordinary', {}], ['scored', { echo: true, logprobs: 0 }]];
  print('between tokens, ms', 'p50', 'p99', 'max', 'prompt, ms', 'of a step');
  for (const [name, extra] of kinds) {
    const stop = new AbortController();
    let begun = 0;
    const readers = Array.from({ length: batch }, (_, i) => {
      let counted = false;
      return stream(cluster.url, '/v1/completions', { prompt: prompt(16), max_tokens: flags.smoke ? 300 : 200, seed: i, ...greedy },
        (count) => { if (count >= 3 && !counted) { counted = true; begun += 1; } });
    });
    while (begun < batch) await sleep(5);
    const quiet = performance.now() / 1000;
    await sleep(flags.smoke ? 20 : 3000);
    const start = performance.now() / 1000;
    const one = await exchange(cluster.url, '/v1/completions', { prompt: prompt(length), max_tokens: 1, ...greedy, ...extra });
    const streams = await Promise.all(readers);
    const without = gapsWithin(streams, quiet, start), beside = gapsWithin(streams, start, start + one.seconds);
    const steps = Math.ceil(length / 128);  // rows of a prompt in a step beside streams
    const row = (label, gaps, ...more) => print(label, ms(quantile(gaps, 0.5)), ms(quantile(gaps, 0.99)), ms(Math.max(...gaps)), ...more);
    row('alone', without);
    row(`beside ${length} tokens, ${name}`, beside, ms(one.seconds), (Math.max(...beside) / (one.seconds / steps)).toFixed(2));
  }
  await cluster.stop();
}

const commands = { scored, overhead, cpu, gap };
const command = commands[name];
if (flags.help || !command) {
  (flags.help ? console.log : console.error)(help);
  process.exit(flags.help ? 0 : 2);
}
await command();
