// Belief propagation on pairs of variables with any number of states: a thread a variable, many
// rows of one structure.
//
// A message is a vector of logs l_j(y). With B = prior + sum l_j of a variable's incoming messages,
// it sends j
//
//     log sum_x psi(x, y) h(x),    h = exp(B - l_j), taken to sum 1,
//
// psi at most 1. Sums are of products that are not negative: nothing cancels, and as h sums to 1
// none is below the least psi, which numbers must hold (minfer.device.vectors).
//
// WEIGHTED: tree-reweighted. Then B = prior + sum rho l, and psi is to the power of 1 / rho.
//
// STATES are the most that a variable has; UNIFORM: all have so many. Variables lie colour after
// colour, in slices of 32. Number k of place i's field is at front[i / 32] + 32 k + i % 32, state k
// of its slot d at start[i / 32] + 32 (d n + k) + i % 32, n its states, what is told of the slot
// itself at link[i / 32] + 32 d + i % 32: so a warp reads 32 neighbouring numbers. There are two
// sets of messages, as in odds.cu.
//
// A slot's `form` says what psi is. Not negative: row of `forms`, (how, where in tab, width), of
// pairs that share it; else 32 tables are side by side, from tab[32 (-1 - form)] on, the slot's own
// states first. Labels by distance are told by numbers [c, v_0, ..., v_{D-1}], D the width, as in
// minfer.kernels.messages.labels: psi is c + v_d (RISE) or v_d (others) below distance D, else c.

enum { DENSE, RISE, BAND, CHAIN };

#define HOLDS (UNIFORM && STATES <= 12)  // and so are all messages of a variable that has four
#define FEW (UNIFORM && STATES <= 16)  // then vectors are in registers: no index is computed
#if FEW
#define EACH UNROLL
#else
#define EACH
#endif
#if UNIFORM
#define SIZE_OF(i) STATES
#else
#define SIZE_OF(i) card[i]
#endif

#define MODEL                                                                                     \
  int places, long long fields, long long numbers, ARRAY(const int) width,                        \
  ARRAY(const int) card, ARRAY(const long long) front, ARRAY(const long long) start,              \
  ARRAY(const long long) link, ARRAY(const int) rev, ARRAY(const int) mate,                       \
  ARRAY(const int) form, ARRAY(const long long) forms, ARRAY(const double) rho,                   \
  ARRAY(const REAL) tab, ARRAY(const REAL) prior
#define GIVEN places, fields, numbers, width, card, front, start, link, rev, mate, form, forms,   \
  rho, tab, prior

#if WEIGHTED
#define SHARE(s) (T) rho[s]
#else
#define SHARE(s) (T)1
#endif

// Field and messages of place i. What is needed at once is read at once, here and below: a load that
// follows a store, or that another depends on, waits for memory alone.
template <class T, class A> HELPER void product(
    int n, int d, long long own, long long from, long long tie, ARRAY(const double) rho, A prior,
    A in, T *b) {
  EACH for (int k = 0; k < n; ++k) b[k] = prior[own + SLICE * k];
#if FEW
  if (d <= 4) {
    UNROLL for (int j = 0; j < 4; ++j)
      EACH for (int k = 0; k < n; ++k)
        b[k] += j < d ? SHARE(tie + SLICE * j) * in[from + SLICE * (n * j + k)] : (T)0;
    return;
  }
#endif
  for (int j = 0; j < d; ++j, from += SLICE * n)
    EACH for (int k = 0; k < n; ++k) b[k] += SHARE(tie + SLICE * j) * in[from + SLICE * k];
}

// n logs as numbers of sum 1; the log of what they summed to. NEAR: nearly so.
template <class T, bool NEAR = false> HELPER T normal(int n, T *b) {
  T top = b[0], sum = 0;
  EACH for (int k = 1; k < n; ++k) top = b[k] > top ? b[k] : top;
  EACH for (int k = 0; k < n; ++k)
    sum += b[k] = NEAR ? near_exp(b[k] - top) : exp_of(b[k] - top);
  T by = 1 / sum;
  EACH for (int k = 0; k < n; ++k) b[k] *= by;
  return top + log_of(sum);
}

// x(y) = sum_x psi(x, y) h(x), n states to m, by a table whose numbers are STEP apart.
template <class T, int STEP> HELPER void dense(
    long long at, int n, int m, ARRAY(const REAL) tab, const T *h, T *x) {
  EACH for (int y = 0; y < m; ++y) x[y] = 0;
  EACH for (int k = 0; k < n; ++k)
    EACH for (int y = 0; y < m; ++y) x[y] += (T)tab[at + STEP * (k * m + y)] * h[k];
}

// The same, by whatever psi is.
template <class T> HELPER void send(
    int form, int lane, int n, int m, ARRAY(const long long) forms, ARRAY(const REAL) tab,
    const T *h, T *x) {
  if (form < 0) {
    dense<T, SLICE>(SLICE * (long long)(-1 - form) + lane, n, m, tab, h, x);
    return;
  }
  long long how = forms[3 * (long long)form], at = forms[3 * (long long)form + 1];
  int D = (int)forms[3 * (long long)form + 2];
  if (how == DENSE) {
    dense<T, 1>(at, n, m, tab, h, x);
    return;
  }
  T c = tab[at], v = D > 0 ? (T)tab[at + 1] : (T)0, base = 0;
  if (how == RISE)
    EACH for (int k = 0; k < n; ++k) base += c * h[k];
  if (how == RISE && D <= 1) {  // Potts
    EACH for (int y = 0; y < n; ++y) x[y] = base + v * h[y];
    return;
  }
  T far = how == RISE ? 0 : c;  // what is beyond the width counts by
#if FEW
  EACH for (int y = 0; y < n; ++y) x[y] = base;
  EACH for (int d = 0; d < n; ++d) {
    T tap = d < D ? (T)tab[at + 1 + d] : far;
    EACH for (int y = d; y < n; ++y) {
      x[y] += tap * h[y - d];
      if (d > 0) x[y - d] += tap * h[y];
    }
  }
#else
  for (int y = 0; y < n; ++y) {
    T sum = base + v * h[y];
    for (int d = 1; d < D; ++d) {
      T both = 0;
      if (y >= d) both += h[y - d];
      if (y + d < n) both += h[y + d];
      sum += (T)tab[at + 1 + d] * both;
    }
    x[y] = sum;
  }
  if (far == 0) return;
  T left = 0, right = 0;
  for (int y = D; y < n; ++y) {
    left += h[y - D];
    x[y] += far * left;
  }
  for (int y = n - 1 - D; y >= 0; --y) {
    if (D > 0) right += h[y + D];
    x[y] += far * right;
    if (D == 0) right += h[y];  // its own has been counted
  }
#endif
}

// How far a message that becomes x, of sum `sum`, moves from the logs at in[at]; and what rounding
// the model may have moved it: numbers of psi by 6e-8 of theirs, those of the field likewise, so
// that log x(y) is off by e(y), on the average over the states y came from.
template <class T, int HOW, class A> HELPER double shift(
    int m, const T *x, T sum, const T *e, A in, long long at, double &rounded) {
  double old = 0, most = 0, mean = 0;
  EACH for (int y = 0; y < m; ++y) {
    old += exp_of((T)in[at + SLICE * y]);
    if (HOW == WATCHED && sizeof(REAL) == 4) mean += (x[y] + e[y]) / sum;
  }
  EACH for (int y = 0; y < m; ++y) {
    double p = x[y] / sum, far = size_of(p - exp_of((T)in[at + SLICE * y]) / old);
    if (HOW == WATCHED && sizeof(REAL) == 4) {
      double off = 1 + (double)e[y] / x[y];
      far += 6e-8 * p * (off + mean - 2 * p * off);
      rounded = higher(rounded, 6e-8 * off);
    }
    most = higher(most, far);
  }
  return most;
}

// Whether there was anything to do.
template <class T, int HOW> HELPER bool visit(
    int first, int last, MODEL, ARRAY(REAL) even, ARRAY(REAL) odd, ARRAY(REAL) bel,
    ARRAY(double) controls, ARRAY(unsigned long long) seen) {
  long long row = blockIdx.y, at = row * fields, mine = row * numbers;
  State now(controls, row);
  if (!(HOW == WATCHED ? now.confirms() : now.sweeps())) return false;
  bool other = HOW == WATCHED || now.flooding != 0;
  T damping = HOW == MIXED ? now.damping : 0;
  double moved = 0, rounded = 0;
  REAL change = 0;
  ARRAY(REAL) in = now.side == 0 ? even : odd;
  ARRAY(REAL) out = (now.side == 0) == other ? odd : even;
  for (int i = first + blockIdx.x * blockDim.x + threadIdx.x; i < last;
       i += blockDim.x * gridDim.x) {
    int d = width[i], n = SIZE_OF(i), lane = i % SLICE;
    if (d < 0) continue;  // nobody
    long long own = at + front[i / SLICE] + lane, from = mine + start[i / SLICE] + lane;
    T b[STATES], h[STATES], x[STATES], e[STATES];
    long long s = link[i / SLICE] + lane, to = 0;
#if HOLDS
    if (HOW == PLAIN && d <= 4) {
      T a[4][STATES];
      int there[4], what[4];
      UNROLL for (int j = 0; j < 4; ++j) {
        EACH for (int k = 0; k < n; ++k) a[j][k] = j < d ? (T)in[from + SLICE * (n * j + k)] : (T)0;
        there[j] = j < d ? rev[s + SLICE * j] : 0, what[j] = j < d ? form[s + SLICE * j] : 0;
      }
      EACH for (int k = 0; k < n; ++k) b[k] = prior[own + SLICE * k];
      EACH for (int k = 0; k < n; ++k) e[k] = bel[own + SLICE * k];
      UNROLL for (int j = 0; j < 4; ++j) {
        T share = j < d ? SHARE(s + SLICE * j) : (T)0;
        EACH for (int k = 0; k < n; ++k) b[k] += share * a[j][k];
      }
      UNROLL for (int j = 0; j < 4; ++j) {
        if (j >= d) continue;
        EACH for (int k = 0; k < n; ++k) h[k] = b[k] - a[j][k];
        normal<T, true>(n, h);
        send(what[j], lane, n, n, forms, tab, h, x);
        EACH for (int y = 0; y < n; ++y) out[mine + there[j] + SLICE * y] = near_log(x[y]);
      }
      normal<T, true>(n, b);
      EACH for (int k = 0; k < n; ++k) {
        REAL p = b[k], by = size_of(p - (REAL)e[k]);
        change = by > change ? by : change;
        bel[own + SLICE * k] = p;
      }
      continue;
    }
#endif
    product<T, ARRAY(const REAL)>(n, d, own, from, s, rho, prior, in, b);
    int kind = 0, m = n;
    T next[FEW ? STATES : 1];  // a slot ahead, for no store may overtake it
    for (int j = -1; j < d; ++j) {
      long long l = from + SLICE * n * j, there = to;
      int what = kind, size = m;
      if (j >= 0) {
        EACH for (int k = 0; k < n; ++k) h[k] = b[k] - (FEW ? next[FEW ? k : 0] : (T)in[l + SLICE * k]);
      }
      if (j + 1 < d) {
        to = mine + rev[s], kind = form[s], m = SIZE_OF(mate[s]), s += SLICE;
#if FEW
        EACH for (int k = 0; k < n; ++k) next[k] = in[l + SLICE * (n + k)];
#endif
      }
      if (j < 0) continue;
      normal(n, h);
      send(what, lane, n, size, forms, tab, h, x);
      T sum = 0;
      if (HOW != PLAIN) {
        EACH for (int y = 0; y < size; ++y) sum += x[y];
        if (HOW == WATCHED && sizeof(REAL) == 4) {
          EACH for (int k = 0; k < n; ++k) h[k] = h[k] > 0 ? h[k] * size_of((T)prior[own + SLICE * k]) : 0;
          send(what, lane, n, size, forms, tab, h, e);
        }
        moved = higher(moved, shift<T, HOW, ARRAY(REAL)>(size, x, sum, e, in, there, rounded));
      }
      EACH for (int y = 0; y < size; ++y) {
        T z = x[y];
        if (HOW == MIXED) z = (1 - damping) * z / sum + damping * exp_of((T)in[there + SLICE * y]);
        out[there + SLICE * y] = log_of(z);
      }
    }
    if (HOW == WATCHED) continue;
    EACH for (int k = 0; k < n; ++k) h[k] = bel[own + SLICE * k];
    normal(n, b);
    EACH for (int k = 0; k < n; ++k) {
      REAL p = b[k], by = size_of(p - (REAL)h[k]);
      change = by > change ? by : change;
      bel[own + SLICE * k] = p;
    }
  }
  if (HOW != WATCHED) raise_to(seen, row * SEEN + CHANGE, change);
  if (HOW != PLAIN) raise_to(seen, row * SEEN + MOVED, moved);
  if (HOW == WATCHED && sizeof(REAL) == 4) raise_to(seen, row * SEEN + ROUNDED, rounded);
  return true;
}

// As in odds.cu.
#define SWEEP(name, T, HOW)                                                                       \
  KERNEL void name(int first, int last, int ends, MODEL, ARRAY(REAL) even, ARRAY(REAL) odd,       \
                   ARRAY(REAL) bel, ARRAY(double) controls, ARRAY(unsigned long long) seen,       \
                   ARRAY(int) tickets, ARRAY(double) trace) {                                     \
    long long row = blockIdx.y;                                                                   \
    if (visit<T, HOW>(first, last, GIVEN, even, odd, bel, controls, seen) && ends &&              \
        is_last(tickets, row))                                                                    \
      judge(row, gridDim.y, controls, seen, trace);                                               \
  }
SWEEP(sweep, REAL, PLAIN)
SWEEP(mix, REAL, MIXED)
SWEEP(update, double, WATCHED)

// As in odds.cu.
KERNEL void finish(MODEL, ARRAY(const REAL) even, ARRAY(const REAL) odd, ARRAY(double) controls,
                   ARRAY(unsigned long long) seen, ARRAY(int) tickets, ARRAY(double) trace) {
  long long row = blockIdx.y;
  State now(controls, row);
  if (now.confirms() && seen_at(seen, row * SEEN + MOVED) <= now.tol) {
    typedef double T;
    ARRAY(const REAL) fresh = now.side == 0 ? odd : even;
    double off = 0, rounded = seen_at(seen, row * SEEN + ROUNDED);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < places; i += blockDim.x * gridDim.x) {
      int d = width[i], n = SIZE_OF(i);
      if (d < 0) continue;
      long long own = row * fields + front[i / SLICE] + i % SLICE;
      long long from = row * numbers + start[i / SLICE] + i % SLICE;
      long long tie = link[i / SLICE] + i % SLICE;
      double x[STATES], y[STATES];
      product<double, ARRAY(const REAL)>(n, d, own, from, tie, rho, prior, even, x);
      product<double, ARRAY(const REAL)>(n, d, own, from, tie, rho, prior, odd, y);
      normal(n, x);
      normal(n, y);
      double e[STATES], mean = 0;  // what rounding new messages hides: e(k), on the average
      EACH for (int k = 0; k < n; ++k) {
        e[k] = 0;
        for (int j = 0; j < d && sizeof(REAL) == 4; ++j)
          e[k] += SHARE(tie + SLICE * j)
                * (6e-8 * size_of((T)fresh[from + SLICE * (n * j + k)]) + rounded);
        mean += (now.side == 0 ? y[k] : x[k]) * e[k];
      }
      EACH for (int k = 0; k < n; ++k) {
        double p = now.side == 0 ? y[k] : x[k];
        off = higher(off, size_of(x[k] - y[k]) + p * (e[k] + mean - 2 * p * e[k]));
      }
    }
    raise_to(seen, row * SEEN + OFF, off);
  }
  if (now.confirms() && is_last(tickets, row)) judge(row, gridDim.y, controls, seen, trace);
}

// What each place adds to the Bethe log Z: (1 - degree) log Z_v, and log Z_f of the pairs whose
// first slot is its own. Scales of messages meet and go.
KERNEL void bethe(MODEL, ARRAY(const REAL) even, ARRAY(const REAL) odd,
                  ARRAY(const double) controls, ARRAY(double) total) {
  long long row = blockIdx.y, at = row * fields, mine = row * numbers;
  ARRAY(const REAL) in = controls[row * CONTROL + SIDE] == 0 ? even : odd;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < places; i += blockDim.x * gridDim.x) {
    int d = width[i], n = SIZE_OF(i);
    if (d < 0) continue;
    long long own = at + front[i / SLICE] + i % SLICE, from = mine + start[i / SLICE] + i % SLICE;
    double b[STATES], h[STATES], x[STATES];
    long long tie = link[i / SLICE] + i % SLICE;
    product<double, ARRAY(const REAL)>(n, d, own, from, tie, rho, prior, in, b);
    EACH for (int k = 0; k < n; ++k) h[k] = b[k];
    double sum = (1 - d) * normal(n, h);
    for (int j = 0; j < d; ++j) {
      long long s = link[i / SLICE] + SLICE * j + i % SLICE, l = from + SLICE * n * j, to = mine + rev[s];
      if (to < l) continue;
      int there = mate[s], m = SIZE_OF(there);
      EACH for (int k = 0; k < n; ++k) h[k] = b[k] - in[l + SLICE * k];
      sum += normal(n, h);
      send(form[s], i % SLICE, n, m, forms, tab, h, x);
      double y[STATES];
      product<double, ARRAY(const REAL)>(
          m, width[there], at + front[there / SLICE] + there % SLICE,
          mine + start[there / SLICE] + there % SLICE, link[there / SLICE] + there % SLICE, rho,
          prior, in, y);
      EACH for (int k = 0; k < m; ++k) y[k] += log_of(x[k]) - in[to + SLICE * k];
      sum += normal(m, y);
    }
    total[row * places + i] = sum;
  }
}

// Beliefs, from the messages that hold.
KERNEL void believe(MODEL, ARRAY(const REAL) even, ARRAY(const REAL) odd,
                    ARRAY(const double) controls, ARRAY(REAL) bel) {
  long long row = blockIdx.y;
  ARRAY(const REAL) in = controls[row * CONTROL + SIDE] == 0 ? even : odd;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < places; i += blockDim.x * gridDim.x) {
    int d = width[i], n = SIZE_OF(i);
    if (d < 0) continue;
    long long own = row * fields + front[i / SLICE] + i % SLICE;
    REAL b[STATES];
    product<REAL, ARRAY(const REAL)>(
        n, d, own, row * numbers + start[i / SLICE] + i % SLICE, link[i / SLICE] + i % SLICE, rho,
        prior, in, b);
    normal(n, b);
    EACH for (int k = 0; k < n; ++k) bel[own + SLICE * k] = b[k];
  }
}
