// Belief propagation on binary pairs, a block a row: all its sweeps and updates, up to `most`, with
// the messages in the block's own memory. The rest is as in odds.cu: places, slots, controls, and
// what converged means; sweeps go colour after colour.
//
// Here a message is the odds m = exp(l), and a sweep divides once for each. With B = exp(prior)
// prod m of a variable's incoming messages it sends j
//
//     (m_j + B W) / (m_j + B),    W = exp(w).
//
// `room` is the block's own memory (the launcher says so). For models where no product leaves the range (minfer.device.odds.MILD): a message lies between 1
// and W. Fields that are larger than floats can carry are held within e^40 in sweeps, which is
// further than any message feels; an update computes in double, with fields within e^240.
//
// What is told to others are logs: where rounding these may move an update, it is counted.

template <class T> HELPER T odds_of(T x) {
  T edge = sizeof(T) == 4 ? 40 : 240;
  return exp_of(x > edge ? edge : x < -edge ? -edge : x);
}

// A float, rounded; a log, rounded, by a function that may be one place off.
#define ONCE (sizeof(REAL) == 4 ? 6e-8 : 0.0)
#define TWICE (sizeof(REAL) == 4 ? 1.2e-7 : 0.0)

// How far apart two messages are: tanh |log x / y| / 4, as in odds.cu.
HELPER double apart_odds(double x, double y) {
  REAL by = size_of(x - y), both = x + y, root = sqrt_of((REAL)x * (REAL)y);
  return (sizeof(REAL) == 4 ? 1.000001 : 1.0) * (double)quick(by, both + 2 * root);
}

// What is at `s` now, and what to put at `to` instead, of a variable of odds B; damped, less far.
template <int HOW> HELPER void say(
    REAL in, REAL odds, REAL W, REAL damping, int to, ARRAY(REAL) m, double &moved) {
  REAL x = quick(in + odds * W, in + odds);
  if (HOW == MIXED) {
    REAL y = m[to];
    moved = higher(moved, apart_odds(x, y));
    x = ((1 - damping) * x * (1 + y) + damping * y * (1 + x))
      / ((1 - damping) * (1 + y) + damping * (1 + x));
  }
  m[to] = x;
}

// Places first..last, a colour; FLAT: all have the same weight. A place's first four slots are read
// at once.
template <int HOW, bool FLAT> HELPER void turn(
    unsigned first, unsigned last, double share, long long at, long long weights, int flat,
    ARRAY(const signed char) width, ARRAY(const int) start, ARRAY(const unsigned short) back,
    ARRAY(const REAL) prior, ARRAY(const REAL) w, ARRAY(REAL) m, ARRAY(REAL) bel, REAL &change,
    double &moved) {
  REAL damping = share, same = FLAT ? exp_of(w[weights + flat]) : (REAL)1;
  for (unsigned i = first + threadIdx.x; i < last; i += blockDim.x) {
    int n = width[i], to[4];
    if (n < 0) continue;  // nobody
    int from = start[i / SLICE] + (int)(i % SLICE);
    REAL odds = odds_of<REAL>(prior[at + i]), was = bel[at + i], l[4], W[4];
    UNROLL for (int k = 0; k < 4; ++k) {
      l[k] = W[k] = 1, to[k] = 0;
      if (k >= n) continue;
      l[k] = m[from + SLICE * k], to[k] = back[from + SLICE * k];
      W[k] = FLAT ? same : exp_of(w[weights + from + SLICE * k]);
      odds *= l[k];
    }
    for (int d = 4; d < n; ++d) odds *= m[from + SLICE * d];
    UNROLL for (int k = 0; k < 4; ++k)
      if (k < n) say<HOW>(l[k], odds, W[k], damping, to[k], m, moved);
    for (int d = 4; d < n; ++d) {
      int s = from + SLICE * d;
      REAL by = FLAT ? same : exp_of(w[weights + s]);
      say<HOW>(m[s], odds, by, damping, back[s], m, moved);
    }
    REAL p = quick(odds, 1 + odds), by = size_of(p - was);
    change = by > change ? by : change;
    bel[at + i] = p;
  }
}

// A confirming update: fresh messages, and how far they moved.
HELPER void renewed(
    int places, long long at, long long mine, long long weights, int flat,
    ARRAY(const signed char) width, ARRAY(const int) start, ARRAY(const unsigned short) back,
    ARRAY(const REAL) prior, ARRAY(const REAL) w, ARRAY(const REAL) m, ARRAY(REAL) fresh, double &moved, double &rounded) {
  double same = flat < 0 ? 1.0 : exp((double)w[weights + flat]);
  for (int i = threadIdx.x; i < places; i += blockDim.x) {
    int n = width[i], from = start[i / SLICE] + i % SLICE;
    if (n < 0) continue;
    double field = prior[at + i], odds = odds_of<double>(field), size = ONCE * size_of(field);
    for (int d = 0; d < n; ++d) {
      REAL l = m[from + SLICE * d];
      odds *= l;
      if (sizeof(REAL) == 4) size += TWICE * size_of(log_of(l));
    }
    for (int d = 0; d < n; ++d) {
      int s = from + SLICE * d, to = back[s];
      double b = w[weights + s], W = flat < 0 ? exp(b) : same, in = m[s], old = m[to];
      double up = in + odds * W, down = in + odds, inverse = 1 / (up * down);
      double x = up * up * inverse, far = apart_odds(x, old);
      if (sizeof(REAL) == 4) {
        double by = size * odds * in * size_of(W - 1) * inverse;  // of c, by f'
        by += ONCE * size_of(b) * odds * W * down * inverse;
        rounded = higher(rounded, by);
        far += 0.25 * (by + TWICE * size_of((double)log_of((REAL)old)));
      }
      moved = higher(moved, far);
      fresh[mine + to] = x;
    }
  }
}

// How far it moved beliefs, as in `finish` of odds.cu.
HELPER double shifted(
    int places, long long at, long long mine, double rounded, ARRAY(const signed char) width,
    ARRAY(const int) start, ARRAY(const REAL) prior, ARRAY(const REAL) m,
    ARRAY(const REAL) fresh) {
  double off = 0;
  for (int i = threadIdx.x; i < places; i += blockDim.x) {
    int n = width[i], from = start[i / SLICE] + i % SLICE;
    double x = odds_of<double>(prior[at + i]), y = x, size = 0;
    for (int d = 0; d < n; ++d) {
      REAL old = m[from + SLICE * d], l = fresh[mine + from + SLICE * d];
      x *= old, y *= l;
      if (sizeof(REAL) == 4)
        size += ONCE + rounded + TWICE * (size_of(log_of(old)) + size_of(log_of(l)));
    }
    double q = 1 / (1 + x), p = 1 / (1 + y);
    off = higher(off, size_of(x - y) * q * p + size * y * p * p);
  }
  return off;
}

KERNEL BOUNDED(512, 2) void whole(
    long long per, int most, int colours, int places, int slots, long long row_w, int flat,
    ARRAY(const int) first, ARRAY(const int) widths, ARRAY(const long long) starts,
    ARRAY(const int) rev, ARRAY(const REAL) prior, ARRAY(const REAL) w, ARRAY(REAL) even,
    ARRAY(REAL) odd, ARRAY(REAL) bel, ARRAY(double) controls, ARRAY(double) trace,
    ARRAY(double) room) {
  int row = blockIdx.x, reals = (slots * (int)sizeof(REAL) + 7) / 8;
  long long at = (long long)row * places, mine = (long long)row * slots, weights = row * row_w;
  State now(controls, row);
  if (!now.sweeps() && !now.confirms()) return;
  ARRAY(double) own = OWN(room, per);
  ARRAY(double) control = part(own, 0);
  ARRAY(unsigned long long) seen = as<unsigned long long>(own, CONTROL, SEEN);
  ARRAY(REAL) m = as<REAL>(own, CONTROL + SEEN, slots);
  ARRAY(unsigned short) back = as<unsigned short>(own, CONTROL + SEEN + reals, slots);
  ARRAY(int) start = as<int>(own, CONTROL + SEEN + reals + (slots + 3) / 4, places / SLICE);
  ARRAY(signed char) width = as<signed char>(
      own, CONTROL + SEEN + reals + (slots + 3) / 4 + (places / SLICE + 1) / 2, places);
  for (int i = threadIdx.x; i < places; i += blockDim.x) width[i] = (signed char)widths[i];
  for (int k = threadIdx.x; k < places / SLICE; k += blockDim.x) start[k] = (int)starts[k];
  for (int k = threadIdx.x; k < CONTROL; k += blockDim.x) control[k] = controls[row * CONTROL + k];
  for (int k = threadIdx.x; k < SEEN; k += blockDim.x) seen[k] = 0;
  for (int s = threadIdx.x; s < slots; s += blockDim.x) {
    REAL l = even[mine + s], b = w[weights + s];  // a message that a sweep might have sent
    REAL low = b < 0 ? b : (REAL)0, high = b > 0 ? b : (REAL)0;
    m[s] = exp_of(l < low ? low : l > high ? high : l);
    back[s] = (unsigned short)rev[s];
  }
  BARRIER();
  for (; most > 0 && (now.sweeps() || now.confirms()); --most) {
    REAL change = 0;
    double moved = 0, rounded = 0;
    if (now.phase == 0) {
      for (int k = 0; k < colours; ++k) {
#define TURN(HOW, FLAT)                                                                        \
  turn<HOW, FLAT>(first[k], first[k + 1], now.damping, at, weights, flat, width, start, back, \
                  prior, w, m, bel, change, moved)
        if (now.damping > 0) TURN(MIXED, false);
        else if (flat < 0) TURN(PLAIN, false);
        else TURN(PLAIN, true);
        BARRIER();
      }
      raise_to(seen, CHANGE, change);
      if (now.damping > 0) raise_to(seen, MOVED, moved);
    } else {
      renewed(places, at, mine, weights, flat, width, start, back, prior, w, m, odd, moved, rounded);
      raise_to(seen, MOVED, moved);
      raise_to(seen, ROUNDED, rounded);
      BARRIER();
      if (seen_at(seen, MOVED) <= now.tol)
        raise_to(seen, OFF, shifted(places, at, mine, seen_at(seen, ROUNDED), width, start, prior,
                                    m, odd));
    }
    BARRIER();
    if (threadIdx.x == 0) judge(0, gridDim.x, control, seen, part(trace, row));
    BARRIER();
    now = State(control, 0);
  }
  bool passed = now.passed != 0;
  for (int i = threadIdx.x; i < places; i += blockDim.x)
    for (int d = 0, s = start[i / SLICE] + i % SLICE; d < width[i]; ++d, s += SLICE) {
      if (passed) odd[mine + s] = log_of(odd[mine + s]);
      if (!passed || gridDim.x == 1) even[mine + s] = log_of(m[s]);
    }
  for (int k = threadIdx.x; k < CONTROL; k += blockDim.x) controls[row * CONTROL + k] = control[k];
}
