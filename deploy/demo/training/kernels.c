/* The element-wise parts of the training step, fused: each reads and writes its tensors once. BF16 tensors are
 * uint16_t; sums and products are float. Shapes are rows x columns, row-major. Built by fast.py with the C compiler.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t bf16;

static inline float up(bf16 x) {
  uint32_t u = (uint32_t)x << 16;
  float r;
  memcpy(&r, &u, 4);
  return r;
}

static inline bf16 down(float x) {  /* to nearest, ties to even */
  uint32_t u;
  memcpy(&u, &x, 4);
  return (bf16)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/* out = x + y (y may be null); r = 1 / rms(out); h = out * r * w. */
void add_norm(long rows, long d, const float *x, const bf16 *y, const float *w, float eps, float *out, float *r,
              bf16 *h) {
  for (long m = 0; m < rows; ++m, x += d, out += d, h += d) {
    float s = 0;
    if (y) {
      for (long i = 0; i < d; ++i) out[i] = x[i] + up(y[i]);
      y += d;
    } else {
      for (long i = 0; i < d; ++i) out[i] = x[i];
    }
    for (long i = 0; i < d; ++i) s += out[i] * out[i];
    const float q = r[m] = 1 / sqrtf(s / d + eps);
    for (long i = 0; i < d; ++i) h[i] = down(out[i] * q * w[i]);
  }
}

/* gx += gradient of the norm's input, gw += gradient of its weight, gy = BF16 of the new gx. */
void norm_back(long rows, long d, const bf16 *g, const float *x, const float *r, const float *w, float *gx, float *gw,
               bf16 *gy) {
  for (long m = 0; m < rows; ++m, g += d, x += d, gx += d, gy += d) {
    const float q = r[m];
    float t = 0;
    for (long i = 0; i < d; ++i) t += up(g[i]) * w[i] * x[i];
    t *= q * q / d;
    for (long i = 0; i < d; ++i) {
      const float gi = up(g[i]);
      gw[i] += gi * x[i] * q;
      gx[i] += q * (gi * w[i] - x[i] * t);
      gy[i] = down(gx[i]);
    }
  }
}

/* One token's qkv row to q [B, H, T, D], k and v [B, KV, T, D]: norm and rotation of q and k; r keeps 1 / rms. */
void split_heads(long B, long T, long nh, long nkv, long hd, const bf16 *qkv, const float *qn, const float *kn,
                 float eps, const float *cs, const float *sn, bf16 *q, bf16 *k, bf16 *v, float *r) {
  const long half = hd / 2;
  for (long b = 0; b < B; ++b)
    for (long t = 0; t < T; ++t)
      for (long h = 0; h < nh + 2 * nkv; ++h, qkv += hd) {
        if (h >= nh + nkv) {
          memcpy(v + ((b * nkv + h - nh - nkv) * T + t) * hd, qkv, hd * sizeof(bf16));
          continue;
        }
        const float *w = h < nh ? qn : kn, *c = cs + t * half, *s = sn + t * half;
        bf16 *to = h < nh ? q + ((b * nh + h) * T + t) * hd : k + ((b * nkv + h - nh) * T + t) * hd;
        float z = 0;
        for (long i = 0; i < hd; ++i) z += up(qkv[i]) * up(qkv[i]);
        z = *r++ = 1 / sqrtf(z / hd + eps);
        for (long i = 0; i < half; ++i) {
          const float x = up(qkv[i]) * z * w[i], y = up(qkv[i + half]) * z * w[i + half];
          to[i] = down(x * c[i] - y * s[i]);
          to[i + half] = down(y * c[i] + x * s[i]);
        }
      }
}

void split_heads_back(long B, long T, long nh, long nkv, long hd, const bf16 *qkv, const float *qn, const float *kn,
                      const float *cs, const float *sn, const bf16 *gq, const bf16 *gk, const bf16 *gv, const float *r,
                      bf16 *g, float *gqn, float *gkn) {
  const long half = hd / 2;
  float n[256];
  for (long b = 0; b < B; ++b)
    for (long t = 0; t < T; ++t)
      for (long h = 0; h < nh + 2 * nkv; ++h, qkv += hd, g += hd) {
        if (h >= nh + nkv) {
          memcpy(g, gv + ((b * nkv + h - nh - nkv) * T + t) * hd, hd * sizeof(bf16));
          continue;
        }
        const float *w = h < nh ? qn : kn, *c = cs + t * half, *s = sn + t * half;
        float *gw = h < nh ? gqn : gkn;
        const bf16 *from = h < nh ? gq + ((b * nh + h) * T + t) * hd : gk + ((b * nkv + h - nh) * T + t) * hd;
        const float z = *r++;
        float dot = 0;
        for (long i = 0; i < half; ++i) {
          const float x = up(from[i]), y = up(from[i + half]);
          n[i] = x * c[i] + y * s[i];
          n[i + half] = y * c[i] - x * s[i];
        }
        for (long i = 0; i < hd; ++i) {
          const float x = up(qkv[i]) * z;
          gw[i] += n[i] * x;
          n[i] *= w[i];
          dot += n[i] * x;
        }
        dot /= hd;
        for (long i = 0; i < hd; ++i) g[i] = down(z * (n[i] - up(qkv[i]) * z * dot));
      }
}

/* s [B, H, T, T] in place to probabilities over keys first[b, t] .. t. */
void softmax(long B, long H, long T, const int32_t *first, float scale, bf16 *s) {
  float e[4096];
  for (long b = 0; b < B; ++b)
    for (long h = 0; h < H; ++h)
      for (long t = 0; t < T; ++t, s += T) {
        const long lo = first[b * T + t], n = t + 1 - lo;
        float top = -1e30f, z = 0;
        for (long i = 0; i < n; ++i) {
          e[i] = up(s[lo + i]);
          top = e[i] > top ? e[i] : top;
        }
        for (long i = 0; i < n; ++i) {
          e[i] = expf((e[i] - top) * scale);
          z += e[i];
        }
        z = 1 / z;
        memset(s, 0, T * sizeof(bf16));
        for (long i = 0; i < n; ++i) s[lo + i] = down(e[i] * z);
      }
}

/* g in place from the gradient of the probabilities to that of the raw scores. */
void softmax_back(long B, long H, long T, const int32_t *first, float scale, const bf16 *p, bf16 *g) {
  for (long b = 0; b < B; ++b)
    for (long h = 0; h < H; ++h)
      for (long t = 0; t < T; ++t, p += T, g += T) {
        const long lo = first[b * T + t];
        float dot = 0;
        for (long i = lo; i <= t; ++i) dot += up(p[i]) * up(g[i]);
        memset(g, 0, lo * sizeof(bf16));
        for (long i = lo; i <= t; ++i) g[i] = down(up(p[i]) * (up(g[i]) - dot) * scale);
        memset(g + t + 1, 0, (T - t - 1) * sizeof(bf16));
      }
}

void swiglu(long rows, long n, const bf16 *gu, bf16 *a) {
  for (long m = 0; m < rows; ++m, gu += 2 * n, a += n)
    for (long i = 0; i < n; ++i) {
      const float g = up(gu[i]);
      a[i] = down(g / (1 + expf(-g)) * up(gu[n + i]));
    }
}

void swiglu_back(long rows, long n, const bf16 *d, const bf16 *gu, bf16 *dgu) {
  for (long m = 0; m < rows; ++m, d += n, gu += 2 * n, dgu += 2 * n)
    for (long i = 0; i < n; ++i) {
      const float g = up(gu[i]), s = 1 / (1 + expf(-g)), x = up(d[i]);
      dgu[i] = down(x * up(gu[n + i]) * (s + g * s * (1 - s)));
      dgu[n + i] = down(x * g * s);
    }
}

/* Logits in place to their gradient; loss[i] is the unweighted loss of row i. */
void cross_entropy(long rows, long V, bf16 *x, const int64_t *target, const float *w, float part, float *loss) {
  float e[8192];
  for (long m = 0; m < rows; ++m, x += V) {
    float top = -1e30f, z = 0;
    for (long i = 0; i < V; ++i) {
      e[i] = up(x[i]);
      top = e[i] > top ? e[i] : top;
    }
    loss[m] = top - e[target[m]];
    for (long i = 0; i < V; ++i) {
      e[i] = expf(e[i] - top);
      z += e[i];
    }
    loss[m] += logf(z);
    const float q = w[m] * part;
    e[target[m]] -= z;
    z = q / z;
    for (long i = 0; i < V; ++i) x[i] = down(e[i] * z);
  }
}

void embed_back(long rows, long d, const int64_t *ids, const float *gx, float *out) {
  for (long m = 0; m < rows; ++m, gx += d) {
    float *o = out + ids[m] * d;
    for (long i = 0; i < d; ++i) o[i] += gx[i];
  }
}

/* c1 and c2 are 1 - b1^n and 1 - b2^n at step n. */
void adamw(long n, float *p, const float *g, float *m, float *v, float lr, float b1, float b2, float eps, float wd,
           float c1, float c2) {
  for (long i = 0; i < n; ++i) {
    const float x = g[i];
    m[i] = b1 * m[i] + (1 - b1) * x;
    v[i] = b2 * v[i] + (1 - b2) * x * x;
    p[i] = p[i] * (1 - lr * wd) - lr * (m[i] / c1) / (sqrtf(v[i] / c2) + eps);
  }
}
