// The servers that the cases share: each starts when its first case comes and stops behind its last.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Cluster, children, demo, eventually, sleep } from '../support.mjs';

const data = process.env.HELIOS_TEST_DATA ?? '';
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'helios-field-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true }));

// A plain model: answers at once, no reasoning, no tools.
const plainTemplate = path.join(folder, 'plain.jinja');
fs.writeFileSync(plainTemplate, `{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant
<think>

</think>

{% endif -%}`);
const plain = ['--chat-template', plainTemplate, '--reasoning-parser', 'none', '--tool-call-parser', 'none'];
const scored = ['--prompt-logprobs', '--prefill-chunk', '256'];
const cache = (tokens) => ['--kv-cache-tokens', String(tokens)];

/** The demo model in a folder of its own, its files linked but for those that `change(name, bytes)` answers for. */
function variant(name, change) {
  const to = path.join(folder, name);
  fs.mkdirSync(to);
  for (const file of fs.readdirSync(demo)) {
    const from = path.resolve(demo, file);
    if (fs.statSync(from).isDirectory()) continue;
    const changed = change(file, from);
    if (changed) fs.writeFileSync(path.join(to, file), changed);
    else fs.symlinkSync(from, path.join(to, file));
  }
  return to;
}

/** The same weights with room for 4,096 tokens. */
const wide = () => variant('demo-wide', (file, from) =>
  file === 'config.json' && JSON.stringify({ ...JSON.parse(fs.readFileSync(from)), max_position_embeddings: 4096 }));

/** One weight of the last norm is NaN, so every logit is. */
const broken = () => variant('demo-nan', (file, from) => {
  if (!file.endsWith('.safetensors')) return null;
  const bytes = fs.readFileSync(from);
  const header = Number(bytes.readBigUInt64LE(0));
  const { dtype, data_offsets: [begin] } = JSON.parse(bytes.toString('utf8', 8, 8 + header))['model.norm.weight'];
  const at = 8 + header + begin;
  if (dtype === 'F32') bytes.writeUInt32LE(0x7fc00000, at);
  else bytes.writeUInt16LE(dtype === 'BF16' ? 0x7fc0 : 0x7e00, at);
  return bytes;
});

const kinds = {
  main: { nproc: 2, args: [...scored, ...plain, ...cache(16384)] },
  spec: { nproc: 1, args: [...scored, ...plain, ...cache(8192), '--speculative-config', '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4,"prompt_lookup_min":2}'] },
  one_rank: { nproc: 1, args: [...scored, ...plain, ...cache(8192)] },
  unscored: { nproc: 1, args: [...plain, ...cache(4096)] },
  parsers: { nproc: 2, args: [...scored, ...cache(8192)] },
  load: { nproc: 2, args: [...scored, ...plain, ...cache(6144)] },
  wide: { model: wide, nproc: 2, args: [...plain, ...cache(3200), '--max-model-len', '3200'] },
  small: { nproc: 1, args: ['--prompt-logprobs', '--prefill-chunk', '832', ...plain, ...cache(848), '--max-model-len', '832', '--max-num-seqs', '8'] },
  odd: { model: () => path.join(data, 'models/tiny-random/llama-gqa-bf16'), nproc: 2, args: cache(2048) },
  nan: { model: broken, nproc: 2, args: [...scored, ...plain, ...cache(2048)] },
  golden: { model: () => path.join(data, 'models/stories260k/f32'), nproc: 2, args: [...scored, ...cache(2048), '--dtype', 'float32'] },
  golden_bf16: { model: () => path.join(data, 'models/stories260k/f32'), nproc: 1, args: [...scored, ...cache(2048), '--dtype', 'bfloat16'] },
  golden_f16: { model: () => path.join(data, 'models/stories260k/f32'), nproc: 1, args: [...scored, ...cache(2048), '--dtype', 'float16'] },
  four_ranks: { nproc: 4, args: [...scored, ...plain, ...cache(2048), '--threads-per-rank', '1'] },
  gloo: { nproc: 2, args: [...scored, ...plain, ...cache(2048), '--collective', 'gloo'] },
};

export class Server {
  static async start(kind) {
    const { model = () => demo, nproc, args } = kinds[kind];
    const server = new Server();
    const directory = model();
    server.cluster = await Cluster.start({ model: directory, nproc, args });
    server.url = server.cluster.url;
    const [card] = (await server.cluster.get('/v1/models')).json().data;
    const config = JSON.parse(fs.readFileSync(path.join(directory, 'config.json')));
    const flag = (name, otherwise) => (args.includes(name) ? Number(args[args.lastIndexOf(name) + 1]) : otherwise);
    server.model = card.id;
    server.facts = {
      VOCAB: config.vocab_size, MAXLEN: card.max_model_len, CHUNK: flag('--prefill-chunk', 512),
      KV_TOKENS: flag('--kv-cache-tokens'), EOS: config.eos_token_id, BOS: config.bos_token_id,
    };
    return server;
  }

  async oneToken(text) {
    const { tokens } = (await this.cluster.post('/tokenize', { prompt: text, add_special_tokens: false })).json();
    assert.equal(tokens.length, 1, `${text} is ${tokens.length} tokens`);
    return tokens[0];
  }

  /** Fills the KV cache once: its pages become resident when they are written, and would look like growth. */
  warm() {
    return (this.warmed ??= this.fillCache());
  }
  async fillCache() {
    const { KV_TOKENS: tokens, MAXLEN: longest, VOCAB: vocab } = this.facts;
    const prompts = Array.from({ length: Math.ceil(tokens / (longest - 1)) }, (_, p) =>
      Array.from({ length: Math.min(longest, tokens) - 1 }, (_, i) => (i * (p + 3)) % Math.min(vocab, 1500)));
    await this.cluster.complete({ prompt: prompts, max_tokens: 1 });
  }

  /** The coordinator, the ranks and the launcher. */
  processes() {
    return [this.cluster.process.pid, ...children(this.cluster.process.pid)].map((pid) => ({
      pid, name: path.basename(fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[0]),
    }));
  }

  /** What may be compared before and after: memory, counters. */
  async sample() {
    const field = (pid, name) => 1024 * Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
    const all = this.processes();
    return {
      anonymous: all.reduce((sum, { pid }) => sum + field(pid, 'RssAnon') + field(pid, 'VmSwap'), 0),
      rankData: all.filter(({ name }) => name === 'helios-worker').map(({ pid }) => field(pid, 'VmData')),
      declared: (await this.cluster.ranks()).map((rank) => rank.memory),
      preemptions: await this.cluster.metric('vllm:num_preemptions_total'),
      running: await this.cluster.metric('vllm:num_requests_running'),
      accepted: await this.cluster.metric('vllm:spec_decode_num_accepted_tokens_total'),
      kvUsed: await this.cluster.metric('vllm:kv_cache_usage_perc'),
    };
  }

  /** Until a request whose client does not read is paused, or done. */
  async idle() {
    let before = -1;
    await eventually('nothing is generated any more', async () => {
      const now = await this.cluster.metric('vllm:generation_tokens_total');
      if (now === before) return true;
      before = now;
      return sleep(500);
    }, 30_000);
  }

  async stop() {
    const { code } = await this.cluster.stop();
    assert.equal(code, 0, this.cluster.log);
  }
}

const users = new Map(); // kind -> {count, starting}

/** Says that a test will use a kind of server; start(kind) and done(kind) follow inside it. */
export function announce(kind) {
  assert.ok(kind in kinds, `no server ${kind}`);
  const entry = users.get(kind) ?? { count: 0, starting: null };
  ++entry.count;
  users.set(kind, entry);
}
export const started = (kind) => (users.get(kind).starting ??= Server.start(kind));
export async function done(kind) {
  const entry = users.get(kind);
  if (--entry.count === 0 && entry.starting) await (await entry.starting).stop();
}
