// Naive mean field on binary pairs: a thread a variable, many rows of one structure; layout as in
// odds.cu. An update is the exact maximum over one variable's q:
//
//     log q_v / (1 - q_v) = prior_v + sum_u w_vu q_u.
//
// A sweep goes through the colours up and down again, so that it is what minfer.solvers.mean_field
// calls a sweep in each direction; a confirming update asks, in doubles, how far an update of any
// one variable would move it, which rounding of the model to floats counts in.

#define MODEL \
\
  int places, long long slots, ARRAY(const int) width, ARRAY(const long long) start,              \
  ARRAY(const int) mate, ARRAY(const REAL) prior, ARRAY(const REAL) w

// The log-odds of place i, and the size of what they are made of.
template <class T, class A> HELPER T pulled(
    int i, long long at, int places, ARRAY(const int) width, ARRAY(const long long) start,
    ARRAY(const int) mate, ARRAY(const REAL) prior, ARRAY(const REAL) w, A q, T &size) {
  T x = prior[at + i];
  size = size_of(x);
  for (int d = 0; d < width[i]; ++d) {
    long long s = start[i / SLICE] + i % SLICE + SLICE * d;
    T y = (T)w[s] * (T)q[at + mate[s]];
    x += y;
    size += size_of(y);
  }
  return x;
}

KERNEL void sweep(int first, int last, MODEL, ARRAY(REAL) bel, ARRAY(double) controls,
                  ARRAY(unsigned long long) seen) {
  long long row = blockIdx.y, at = row * places;
  if (!State(controls, row).sweeps()) return;
  REAL change = 0, size;
  for (int i = first + blockIdx.x * blockDim.x + threadIdx.x; i < last;
       i += blockDim.x * gridDim.x) {
    if (width[i] < 0) continue;  // nobody
    REAL x = pulled<REAL, ARRAY(REAL)>(i, at, places, width, start, mate, prior, w, bel, size);
    REAL p = chance(x), by = size_of(p - bel[at + i]);
    change = by > change ? by : change;
    bel[at + i] = p;
  }
  raise_to(seen, row * SEEN + CHANGE, change);
}

KERNEL void update(MODEL, ARRAY(REAL) bel, ARRAY(double) controls,
                   ARRAY(unsigned long long) seen) {
  long long row = blockIdx.y, at = row * places;
  if (!State(controls, row).confirms()) return;
  double moved = 0, size;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < places; i += blockDim.x * gridDim.x) {
    if (width[i] < 0) continue;
    double x = pulled<double, ARRAY(REAL)>(i, at, places, width, start, mate, prior, w, bel, size);
    double p = chance(x), by = size_of(p - bel[at + i]);
    if (sizeof(REAL) == 4) by += 6e-8 * size * p * (1 - p);
    moved = higher(moved, by);
  }
  raise_to(seen, row * SEEN + MOVED, moved);
}

KERNEL void finish(ARRAY(double) controls, ARRAY(unsigned long long) seen, ARRAY(int) tickets,
                   ARRAY(double) trace) {
  if (is_last(tickets, blockIdx.y)) judge(blockIdx.y, gridDim.y, controls, seen, trace);
}
