// What runs of all sorts share: arithmetic, the columns of `controls`, and the judge.
//
// What converged means is minfer.solvers.propagation's; `judge` follows
// minfer.kernels.messages.odds.sweep_pairs line by line, a thread a row.
//
// REAL is what numbers are stored as; a confirming update computes in double whatever they are.
// The launcher's are ARRAY(T), pointers on a card and checked arrays in tests on a processor; KERNEL,
// HELPER and METHOD; BARRIER() of a block, SHARED(T, name, n) of its own, BOUNDED(threads, blocks of a
// processor); quick(x, y), a quotient that may be two places off, near_exp and near_log, which may be
// off by 2^-21 (both of the value and in all); raise_to(seen, at, x), which all threads of a block call, and seen_at; and
// is_last(tickets, row), true in one thread of a row once all others are done.

#define SLICE 32
enum { TOL, DAMPING, PHASE, TRIGGER, LAST, WORST, PASSED, MADE, SIDE, FLOODING, MOST, RESIDUAL,
       ROUND, CONTROL };
// How far beliefs moved in a sweep, messages, and beliefs in a confirming update; how far rounding
// of the model to floats may have moved a message of that, in log-odds or logs.
enum { CHANGE, MOVED, OFF, ROUNDED, SEEN };

HELPER double higher(double x, double y) { return x > y ? x : y; }
HELPER float exp_of(float x) { return expf(x); }
HELPER double exp_of(double x) { return exp(x); }
HELPER float log_of(float x) { return logf(x); }
HELPER double log_of(double x) { return log(x); }
HELPER float sqrt_of(float x) { return sqrtf(x); }
HELPER double sqrt_of(double x) { return sqrt(x); }
HELPER float log1p_of(float x) { return log1pf(x); }
HELPER double log1p_of(double x) { return log1p(x); }

template <class T> HELPER T size_of(T x) { return x < 0 ? -x : x; }
template <class T> HELPER T softplus(T x) { return (x > 0 ? x : 0) + log1p_of(exp_of(-size_of(x))); }
template <class T> HELPER T chance(T x) {
  T e = exp_of(-size_of(x));
  return (x < 0 ? e : 1) / (1 + e);
}

enum { PLAIN, MIXED, WATCHED };  // how a sweep is made: undamped, damped, or as a confirming update

// The controls of a row, all read at once: what is read one by one is waited for one by one.
struct State {
  double tol, damping, phase, trigger, last, passed, made, side, flooding, most;

  METHOD State(ARRAY(const double) controls, long long row)
      : tol(controls[row * CONTROL + TOL]), damping(controls[row * CONTROL + DAMPING]),
        phase(controls[row * CONTROL + PHASE]), trigger(controls[row * CONTROL + TRIGGER]),
        last(controls[row * CONTROL + LAST]), passed(controls[row * CONTROL + PASSED]),
        made(controls[row * CONTROL + MADE]), side(controls[row * CONTROL + SIDE]),
        flooding(controls[row * CONTROL + FLOODING]), most(controls[row * CONTROL + MOST]) {}

  // Whether the row's next sweep is one like any other, or a confirming update.
  METHOD bool sweeps() const { return passed == 0 && made < most && phase == 0; }
  METHOD bool confirms() const { return passed == 0 && made < most && phase != 0; }
};

// The end of a sweep of a row: has it converged, is the next sweep a confirming update? The trace
// holds the last residuals, as many as `round` says.
HELPER void judge(long long row, long long rows, ARRAY(double) controls,
                  ARRAY(unsigned long long) seen, ARRAY(double) trace) {
  State now(controls, row);
  double change = seen_at(seen, row * SEEN + CHANGE), moved = seen_at(seen, row * SEEN + MOVED);
  double off = seen_at(seen, row * SEEN + OFF), told = 0;
  long long c = row * CONTROL;
  if (now.sweeps() || now.confirms()) {
    bool flooding = now.flooding != 0, turn = flooding;
    if (now.phase == 0) {
      told = change / (1 - now.damping);
      double most = now.damping > 0 ? higher(told, moved) : told;
      controls[c + LAST] = most;
      if (now.damping == 0 && most < now.last && now.last < 1e300) most *= most / now.last;
      if (most <= now.trigger) controls[c + PHASE] = -1;
    } else {
      double worst = moved;
      if (worst <= now.tol) worst = higher(worst, off);
      controls[c + PHASE] = 0;
      controls[c + WORST] = worst;
      told = -worst;
      if (worst <= now.tol) {
        controls[c + PASSED] = 1;
        turn = true;
      } else {
        turn = flooding && now.damping == 0;  // then it is one like any other
        double share = 0.9 * now.tol / worst, least = now.damping == 0 ? 0.02 * now.tol : 0;
        share = share < 0.1 ? 0.1 : share > 0.7 ? 0.7 : share;
        controls[c + TRIGGER] = higher(now.trigger * share, least);
        controls[c + LAST] = 1e308;
      }
    }
    controls[c + MADE] = now.made + 1;
    if (turn) controls[c + SIDE] = 1 - now.side;
    controls[c + RESIDUAL] = told;
    trace[(int)now.made % (int)controls[c + ROUND] * rows + row] = told;
  }
  for (int k = 0; k < SEEN; ++k) seen[row * SEEN + k] = 0;
}
