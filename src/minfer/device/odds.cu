// Belief propagation on binary pairs: a thread a variable, many rows of one structure.
//
// A message is the log-odds l of what it says. With B = prior + sum l of a variable's incoming
// messages and c = B - l_j its cavity towards j, it sends j
//
//     f(c, w) = softplus(w + c) - softplus(c),    w = log psi11 psi00 / (psi01 psi10).
//
// WEIGHTED: tree-reweighted. Then B = prior + sum rho l, and w is over rho of its pair.
//
// Variables lie colour after colour, in slices of 32; slot d of place i is start[i / 32] + 32 d +
// i % 32, so that a warp reads 32 neighbouring numbers. There are two sets of messages: sweeps of
// one colour after the other write into the set they read, flooding ones and confirming updates
// into the other.

#if WEIGHTED
#define SHARE(s) (T) rho[s]
#else
#define SHARE(s) (T)1
#endif

// f(c, w): the larger parts are subtracted first, so nothing large cancels.
template <class T> HELPER T message(T c, T w) {
  T s = w + c;
  T whole = s > 0 ? (c > 0 ? w : s) : (c > 0 ? -c : 0);
  return whole + log_of((1 + exp_of(-size_of(s))) / (1 + exp_of(-size_of(c))));
}

// The log-odds of the average of two messages taken as probabilities.
template <class T> HELPER T damped(T x, T old, T damping) {
  T a = log_of(1 - damping) + softplus(old), b = log_of(damping) + softplus(x);
  T top = a > b ? a : b, u = a + x, v = b + old, most = u > v ? u : v;
  return most + log_of(exp_of(u - most) + exp_of(v - most))
       - top - log_of(exp_of(a - top) + exp_of(b - top));
}

// How far messages moved: the most that a probability can, however tables are split.
template <class T> HELPER double apart(T x, T y) { return tanh(0.25 * size_of((double)x - (double)y)); }

// What x, for the slot at `to`, is for a message: how far it moved what was there, and what rounding
// prior and w may have moved it; damped, it stays nearer to that. l is the cavity's.
template <class T, int HOW> HELPER T weighed(
    T x, T c, T b, REAL field, REAL was, T damping, double &moved, double &rounded) {
  if (HOW == PLAIN) return x;
  T old = was;
  double far = apart(x, old);
  if (sizeof(REAL) == 4) {  // prior and w were rounded: by how much that moved it, at most
    T p = chance(b + c), q = chance(c);
    double by = 6e-8 * (size_of((T)field) * size_of(p - q) + size_of(b) * p);
    far += 0.25 * by;
    rounded = higher(rounded, by);
  }
  moved = higher(moved, far);
  return HOW == MIXED ? damped<T>(x, old, damping) : x;
}

#if PARTS > 1
// The sum over the threads that share a place, which are `group` apart.
template <class T> HELPER T together(T x, int group) {
  SHARED(T, sums, 256);
  sums[threadIdx.x] = x;
  BARRIER();
  x = 0;
  for (int k = threadIdx.x % group; k < (int)blockDim.x; k += group) x += sums[k];
  BARRIER();
  return x;
}
#endif

// Every place first..last of a row, in the arithmetic of T; whether there was anything to do. A
// place's first four slots, which are most, are read at once, before anything is written: loads wait
// for nothing but memory. PARTS threads share a place, every one of them some of its slots.
template <class T, int HOW> HELPER bool visit(
    int first, int last, int places, long long slots, long long row_w, ARRAY(const int) width,
    ARRAY(const long long) start, ARRAY(const int) rev, ARRAY(const double) rho,
    ARRAY(const REAL) prior, ARRAY(const REAL) w, ARRAY(REAL) even, ARRAY(REAL) odd,
    ARRAY(REAL) bel, ARRAY(double) controls, ARRAY(unsigned long long) seen) {
  long long row = blockIdx.y, at = row * places, mine = row * slots;
  State now(controls, row);
  if (!(HOW == WATCHED ? now.confirms() : now.sweeps())) return false;
  bool other = HOW == WATCHED || now.flooding != 0;
  T damping = HOW == MIXED ? now.damping : 0;
  double moved = 0, rounded = 0;
  REAL change = 0;
  ARRAY(REAL) in = now.side == 0 ? even : odd;
  ARRAY(REAL) out = (now.side == 0) == other ? odd : even;
  T l[4], b[4], share[4];
  int to[4];
#if PARTS > 1
  int parts = PARTS < (int)blockDim.x ? PARTS : blockDim.x, group = blockDim.x / parts;
  int part = threadIdx.x / group;
  for (int begin = first + blockIdx.x * group; begin < last; begin += group * gridDim.x) {
    int i = begin + threadIdx.x % group, n = i < last ? width[i] : -1;
    long long from = n < 0 ? 0 : start[i / SLICE] + i % SLICE;
    REAL field = n < 0 ? (REAL)0 : prior[at + i];
    T odds = 0;
    for (int d = part; d < n; d += 4 * parts) {
      for (int k = 0; k < 4; ++k) {
        long long s = from + SLICE * (d + parts * k < n ? d + parts * k : d);
        l[k] = in[mine + s], share[k] = SHARE(s);
      }
      for (int k = 0; k < 4; ++k)
        if (d + parts * k < n) odds += share[k] * l[k];
    }
    odds = field + together(odds, group);
    if (n < 0) continue;
    for (int d = part; d < n; d += 4 * parts) {
      for (int k = 0; k < 4; ++k) {
        long long s = from + SLICE * (d + parts * k < n ? d + parts * k : d);
        l[k] = in[mine + s], b[k] = w[row * row_w + s], to[k] = rev[s];
      }
      for (int k = 0; k < 4; ++k) {
        if (d + parts * k >= n) continue;
        T c = odds - l[k];
        out[mine + to[k]] = weighed<T, HOW>(
            message<T>(c, b[k]), c, b[k], field, in[mine + to[k]], damping, moved, rounded);
      }
    }
    if (HOW == WATCHED || part != 0) continue;
    REAL was = bel[at + i];
#else
  for (int i = first + blockIdx.x * blockDim.x + threadIdx.x; i < last;
       i += blockDim.x * gridDim.x) {
    int n = width[i];
    if (n < 0) continue;  // nobody
    long long from = start[i / SLICE] + i % SLICE;
    T odds = prior[at + i];
    REAL was = HOW == WATCHED ? 0 : bel[at + i], field = odds;
    for (int k = 0; k < 4 && n > 0; ++k) {
      long long s = from + SLICE * (k < n ? k : 0);
      l[k] = in[mine + s], b[k] = w[row * row_w + s], to[k] = rev[s], share[k] = SHARE(s);
    }
    for (int k = 0; k < 4; ++k)
      if (k < n) odds += share[k] * l[k];
    for (int d = 4; d < n; ++d) odds += SHARE(from + SLICE * d) * in[mine + from + SLICE * d];
    for (int done = 0; done < n; done += 4) {
      for (int k = 0; k < 4 && done > 0; ++k) {
        long long s = from + SLICE * (done + k < n ? done + k : 0);
        l[k] = in[mine + s], b[k] = w[row * row_w + s], to[k] = rev[s];
      }
      for (int k = 0; k < 4; ++k) {
        if (done + k >= n) continue;
        T c = odds - l[k];
        REAL old = HOW == PLAIN ? (REAL)0 : in[mine + to[k]];
        out[mine + to[k]] = weighed<T, HOW>(
            message<T>(c, b[k]), c, b[k], field, old, damping, moved, rounded);
      }
    }
    if (HOW == WATCHED) continue;
#endif
    REAL p = chance<T>(odds), by = size_of(p - was);
    change = by > change ? by : change;
    bel[at + i] = p;
  }
  if (HOW != WATCHED) raise_to(seen, row * SEEN + CHANGE, change);
  if (HOW != PLAIN) raise_to(seen, row * SEEN + MOVED, moved);
  if (HOW == WATCHED && sizeof(REAL) == 4) raise_to(seen, row * SEEN + ROUNDED, rounded);
  return true;
}

// Places first..last of every row that goes on: a colour, or all of them; the last of a sweep has
// the judge in it. A row that is to be confirmed has no sweep, but an update.
#define SWEEP(name, T, HOW)                                                                      \
  KERNEL void name(                                                                              \
      int first, int last, int ends, int places, long long slots, long long row_w,               \
      ARRAY(const int) width, ARRAY(const long long) start, ARRAY(const int) rev,                \
      ARRAY(const double) rho, ARRAY(const REAL) prior, ARRAY(const REAL) w, ARRAY(REAL) even,   \
      ARRAY(REAL) odd, ARRAY(REAL) bel, ARRAY(double) controls, ARRAY(unsigned long long) seen,  \
      ARRAY(int) tickets, ARRAY(double) trace) {                                                 \
    long long row = blockIdx.y;                                                                  \
    if (visit<T, HOW>(first, last, places, slots, row_w, width, start, rev, rho, prior, w, even, \
                      odd, bel, controls, seen) && ends && is_last(tickets, row))                \
      judge(row, gridDim.y, controls, seen, trace);                                              \
  }
SWEEP(sweep, REAL, PLAIN)
SWEEP(mix, REAL, MIXED)
SWEEP(update, double, WATCHED)

// The end of a sweep. After a confirming update that moved no message too far: how far it moved
// beliefs, before its messages were rounded and by the model as it was given; then the judge.
KERNEL void finish(
    int places, long long slots, ARRAY(const int) width, ARRAY(const long long) start,
    ARRAY(const double) rho, ARRAY(const REAL) prior, ARRAY(const REAL) even,
    ARRAY(const REAL) odd, ARRAY(double) controls, ARRAY(unsigned long long) seen, ARRAY(int) tickets,
    ARRAY(double) trace) {
  long long row = blockIdx.y;
  State now(controls, row);
  if (now.confirms() && seen_at(seen, row * SEEN + MOVED) <= now.tol) {
    ARRAY(const REAL) fresh = now.side == 0 ? odd : even;
    double rounded = seen_at(seen, row * SEEN + ROUNDED);
    double off = 0;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < places;
         i += (long long)blockDim.x * gridDim.x) {
      long long from = start[i / SLICE] + i % SLICE;
      double x = prior[row * places + i], y = x, size = 0;
      for (int d = 0; d < width[i]; ++d) {
        typedef double T;
        x += SHARE(from + SLICE * d) * even[row * slots + from + SLICE * d];
        y += SHARE(from + SLICE * d) * odd[row * slots + from + SLICE * d];
        if (sizeof(REAL) == 8) continue;
        T l = fresh[row * slots + from + SLICE * d];
        size += SHARE(from + SLICE * d) * (6e-8 * size_of(l) + rounded);
      }
      double p = chance(now.side == 0 ? y : x);
      off = higher(off, size_of(chance(x) - chance(y)) + size * p * (1 - p));
    }
    raise_to(seen, row * SEEN + OFF, off);
  }
  if (now.confirms() && is_last(tickets, row)) judge(row, gridDim.y, controls, seen, trace);
}

// Log-odds of place i, less a field that stands for certainty; whether there is one.
HELPER double less_known(long long row, long long i, int places, long long slots,
                         ARRAY(const int) width, ARRAY(const long long) start,
                         ARRAY(const REAL) prior, ARRAY(const REAL) in, bool &known) {
  double x = prior[row * places + i];
  known = x > 1e29;
  if (known) x = 0;
  for (int d = 0; d < width[i]; ++d)
    x += in[row * slots + start[i / SLICE] + i % SLICE + SLICE * d];
  return x;
}

// What each place adds to the Bethe log Z: (1 - degree) log Z_v, and log Z_f of the pairs whose
// first slot is its own; the other end is at place `mate`. Known variables count from their state.
KERNEL void bethe(
    int places, long long slots, long long row_w, ARRAY(const int) width,
    ARRAY(const long long) start, ARRAY(const int) rev, ARRAY(const int) mate,
    ARRAY(const REAL) prior, ARRAY(const REAL) w, ARRAY(const REAL) even, ARRAY(const REAL) odd,
    ARRAY(const double) controls, ARRAY(double) total) {
  long long row = blockIdx.y;
  ARRAY(const REAL) in = controls[row * CONTROL + SIDE] == 0 ? even : odd;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < places;
       i += (long long)blockDim.x * gridDim.x) {
    if (width[i] < 0) continue;
    bool one, two;
    double x = less_known(row, i, places, slots, width, start, prior, in, one);
    double sum = (1 - width[i]) * (one ? x : softplus(x));
    for (int d = 0; d < width[i]; ++d) {
      long long s = start[i / SLICE] + i % SLICE + SLICE * d, r = rev[s];
      if (r < s) continue;
      double b = w[row * row_w + s], c = x - in[row * slots + s];
      double y = less_known(row, mate[s], places, slots, width, start, prior, in, two);
      y -= in[row * slots + r];
      sum += one ? c + (two ? y + b : softplus(y + b))
           : two ? y + softplus(c + b) : softplus(c) + softplus(y + message(c, b));
    }
    total[row * places + i] = sum;
  }
}

// Beliefs of state 1, from the messages that hold.
KERNEL void believe(
    int places, long long slots, ARRAY(const int) width, ARRAY(const long long) start,
    ARRAY(const double) rho, ARRAY(const REAL) prior, ARRAY(const REAL) even,
    ARRAY(const REAL) odd, ARRAY(const double) controls, ARRAY(REAL) bel) {
  long long row = blockIdx.y;
  ARRAY(const REAL) in = controls[row * CONTROL + SIDE] == 0 ? even : odd;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < places;
       i += (long long)blockDim.x * gridDim.x) {
    long long from = start[i / SLICE] + i % SLICE;
    double x = prior[row * places + i];
    typedef double T;
    for (int d = 0; d < width[i]; ++d)
      x += SHARE(from + SLICE * d) * in[row * slots + from + SLICE * d];
    bel[row * places + i] = chance(x);
  }
}
