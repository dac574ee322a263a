// Random requests, each a function of its seed.

/** One seed's decisions. */
export class Dice {
  constructor(seed) {
    this.state = (seed * 2654435761 + 12345) >>> 0 || 1;
  }
  below(n) {
    for (const shift of [13, -17, 5]) this.state ^= shift > 0 ? this.state << shift : this.state >>> -shift;
    return (this.state >>> 0) % n;
  }
  of(list) {
    return list[this.below(list.length)];
  }
  /** `value` with a chance of 1 in `n`. */
  maybe(n, value) {
    return this.below(n) === 0 ? value() : {};
  }
}

const pieces = ['Once upon a time', ' the harbour', ' café', ' 🧎🏽‍♀️', '龘靐', ' ไทย', '\n\n', '  ', '1234', ' don\'t', ' {"a": [', '<|im_end|>', '<think>', '</think>',
  '<tool_call>', '\ufffd', ' e\u0301', 'STOP', ' Hi'];
export const tools = ['get_weather', 'add'].map((name) => ({
  type: 'function', function: { name, parameters: { type: 'object', properties: { a: { type: 'string', maxLength: 8 } }, required: ['a'], additionalProperties: false } },
}));

export const text = (dice) => Array.from({ length: 1 + dice.below(6) }, () => dice.of(pieces)).join('');
export function sampling(dice) {
  return {
    seed: dice.below(1000), max_tokens: 1 + dice.below(70), temperature: dice.of([0, 0.7, 1, 1.6, 2]),
    ...dice.maybe(3, () => ({ top_p: dice.of([0.3, 0.9]) })), ...dice.maybe(3, () => ({ top_k: dice.of([1, 5, 200]) })),
    ...dice.maybe(4, () => ({ min_p: 0.05 })), ...dice.maybe(4, () => ({ repetition_penalty: 1.3, presence_penalty: 0.5 })),
    ...dice.maybe(3, () => ({ ignore_eos: true })), ...dice.maybe(6, () => ({ min_tokens: 1 })),
    ...dice.maybe(3, () => ({ skip_special_tokens: false })),
    ...dice.maybe(6, () => ({ n: 2 })), ...dice.maybe(5, () => ({ stop_token_ids: [dice.below(1500), dice.below(1500)] })),
    // Tokens of single bytes: characters in the making all along.
    ...dice.maybe(6, () => ({ logit_bias: Object.fromEntries(Array.from({ length: 128 }, (_, i) => [i + 100, 12])) })),
  };
}

/** Stops that bite: cut out of what the same request says without them, so that most occur, some inside tokens. */
export function stopsFrom(dice, spoken) {
  const points = [...spoken];
  return Array.from({ length: 1 + dice.below(3) }, () => {
    const at = dice.below(Math.max(points.length, 1));
    return points.slice(at, at + 1 + dice.below(5)).join('') || 'zz';
  });
}
