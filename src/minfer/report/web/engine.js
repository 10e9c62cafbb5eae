// Exact answers in the browser: two passes of messages through a clique tree that was planned
// beforehand, in logarithms, so that no evidence is too unlikely to be told from impossible.

const floats = (text) => new Float64Array(bytes(text).buffer);

function makeEngine(plan) {
  const { card, fixed } = plan;
  const field = floats(plan.field),
    tables = floats(plan.tables);
  const start = [0];
  for (const size of card) start.push(start.at(-1) + size);

  // Cells of a clique lie with its last variable fastest. Those that are eliminated in it come
  // first, so that the place of cell i in its message is i modulo the message's size.
  const cliques = plan.cliques.map((variables, c) => {
    const out = variables.slice(0, plan.eliminated[c]);
    const size = (scope) => scope.reduce((cells, v) => cells * card[v], 1);
    const clique = {
      variables,
      out,
      cells: size(variables),
      separator: variables.slice(out.length),
      children: [],
    };
    clique.n = size(clique.separator);
    clique.factors = [];
    clique.own = new Float64Array(clique.cells);
    clique.work = new Float64Array(clique.cells);
    clique.up = new Float64Array(clique.n);
    clique.down = new Float64Array(clique.n);
    return clique;
  });
  const most = cliques.reduce((cells, clique) => Math.max(cells, clique.cells), 1);
  const belief = new Float64Array(most),
    sums = new Float64Array(most);

  // where each cell of a clique lies in a table over some of its variables
  function places(clique, scope) {
    const step = new Map();
    for (let k = scope.length - 1, size = 1; k >= 0; size *= card[scope[k]], k -= 1)
      step.set(scope[k], size);
    const at = new Int32Array(clique.cells);
    let filled = 1;
    for (let k = clique.variables.length - 1; k >= 0; k -= 1) {
      const v = clique.variables[k],
        by = step.get(v) ?? 0;
      for (let s = 1; s < card[v]; s += 1)
        for (let i = 0; i < filled; i += 1) at[s * filled + i] = at[i] + s * by;
      filled *= card[v];
    }
    return at;
  }

  plan.scopes.forEach((_, f) => cliques[plan.clique_of[f]].factors.push(f));
  // all tables of a clique, but those that gave way
  function fill(clique, gone) {
    const { own, cells } = clique;
    own.fill(0);
    for (const f of clique.factors) {
      if (gone.has(f)) continue;
      const at = places(clique, plan.scopes[f]),
        first = plan.at[f];
      for (let i = 0; i < cells; i += 1) own[i] += tables[first + at[i]];
    }
    for (const v of clique.out) {
      const at = places(clique, [v]);
      for (let i = 0; i < cells; i += 1) own[i] += field[start[v] + at[i]];
    }
  }
  cliques.forEach((clique, c) => {
    fill(clique, new Set());
    if (plan.parent[c] >= 0) {
      const parent = cliques[plan.parent[c]];
      parent.children.push({ clique, at: places(parent, clique.separator) });
    }
  });

  // calls body(state, cell) for all cells of a clique, by the state of its k-th variable
  function byState(clique, k, body) {
    let inner = 1;
    for (let j = k + 1; j < clique.variables.length; j += 1) inner *= card[clique.variables[j]];
    const size = card[clique.variables[k]];
    for (let i = 0, s = 0; i < clique.cells; s = s + 1 === size ? 0 : s + 1)
      for (const end = i + inner; i < end; i += 1) body(s, i);
  }

  // Likelihoods of soft evidence, which count in all that follows: a Map from variables.
  let soft = new Map();
  function soften(likelihoods) {
    soft = new Map([...likelihoods].map(([v, each]) => [v, Float64Array.from(each, Math.log)]));
  }

  // Variables that are set, a Set: their own tables, P(v | parents), give way in all that follows.
  // What they are set to is evidence.
  let acted = new Set();
  const settable = (v) => (plan.own?.[v] ?? -1) >= 0;
  function act(done) {
    const gone = new Set([...done].map((v) => plan.own[v]));
    const touched = [...acted, ...done].filter((v) => acted.has(v) !== done.has(v));
    for (const c of new Set(touched.map((v) => plan.clique_of[plan.own[v]]))) fill(cliques[c], gone);
    acted = new Set(done);
  }

  // Towards the roots. The log of the sum (or maximum) over everything, or null if that is zero.
  function collect(evidence, best) {
    for (let v = 0; v < card.length; v += 1)
      if (fixed[v] >= 0 && evidence[v] >= 0 && evidence[v] !== fixed[v]) return null;
    let scale = 0;
    for (const [v, log] of soft) if (fixed[v] >= 0) scale += log[fixed[v]];
    if (scale === -Infinity) return null;
    for (const clique of cliques) {
      const { work, up, n, cells } = clique;
      work.set(clique.own);
      clique.out.forEach((v, k) => {
        const log = soft.get(v);
        if (log !== undefined)
          byState(clique, k, (s, i) => {
            work[i] += log[s];
          });
        if (evidence[v] < 0) return;
        byState(clique, k, (s, i) => {
          if (s !== evidence[v]) work[i] = -Infinity;
        });
      });
      for (const { clique: child, at } of clique.children)
        for (let i = 0; i < cells; i += 1) work[i] += child.up[at[i]];
      up.fill(-Infinity);
      for (let i = 0, s = 0; i < cells; i += 1, s = s + 1 === n ? 0 : s + 1)
        if (work[i] > up[s]) up[s] = work[i];
      let peak = -Infinity;
      if (!best) {
        sums.fill(0, 0, n);
        for (let i = 0, s = 0; i < cells; i += 1, s = s + 1 === n ? 0 : s + 1)
          if (work[i] > -Infinity) sums[s] += Math.exp(work[i] - up[s]);
      }
      for (let s = 0; s < n; s += 1) {
        if (!best && up[s] > -Infinity) up[s] += Math.log(sums[s]);
        if (up[s] > peak) peak = up[s];
      }
      if (peak === -Infinity) return null;
      for (let s = 0; s < n; s += 1) up[s] -= peak;
      scale += peak;
    }
    return scale;
  }

  // Back from the roots; posteriors of all variables end to end.
  function distribute(evidence) {
    const p = new Float64Array(start.at(-1));
    fixed.forEach((s, v) => {
      if (s >= 0) p[start[v] + s] = 1;
    });
    for (let c = cliques.length - 1; c >= 0; c -= 1) {
      const clique = cliques[c],
        { work, cells, n, down } = clique;
      let peak = -Infinity;
      for (let i = 0, s = 0; i < cells; i += 1, s = s + 1 === n ? 0 : s + 1) {
        if (plan.parent[c] >= 0) work[i] += down[s];
        if (work[i] > peak) peak = work[i];
      }
      for (let i = 0; i < cells; i += 1) belief[i] = Math.exp(work[i] - peak);
      for (const { clique: child, at } of clique.children) {
        sums.fill(0, 0, child.n);
        for (let i = 0; i < cells; i += 1) sums[at[i]] += belief[i];
        for (let s = 0; s < child.n; s += 1)
          child.down[s] = sums[s] > 0 ? Math.log(sums[s]) - child.up[s] : -Infinity;
      }
      clique.out.forEach((v, k) => {
        const first = start[v];
        byState(clique, k, (s, i) => {
          p[first + s] += belief[i];
        });
        let total = 0;
        for (let s = 0; s < card[v]; s += 1) total += p[first + s];
        for (let s = 0; s < card[v]; s += 1) p[first + s] /= total;
      });
    }
    return p;
  }

  // {p, logZ}, or null if the evidence is impossible
  function posteriors(evidence) {
    const logZ = collect(evidence, false);
    return logZ === null ? null : { p: distribute(evidence), logZ };
  }

  // {states, score}: the likeliest states of all variables together, and the log of their weight
  function explanation(evidence) {
    const score = collect(evidence, true);
    if (score === null) return null;
    const states = Array.from(fixed);
    for (let c = cliques.length - 1; c >= 0; c -= 1) {
      const { variables, separator, work, n, cells } = cliques[c];
      let best = separator.reduce((at, v) => at * card[v] + states[v], 0);
      for (let i = best + n; i < cells; i += n) if (work[i] > work[best]) best = i;
      for (let k = variables.length - 1, rest = best; k >= 0; k -= 1) {
        const v = variables[k];
        states[v] = rest % card[v];
        rest = Math.floor(rest / card[v]);
      }
    }
    return { states, score };
  }

  // Bits that each variable would tell about a target on average, from one run for each of its
  // states: I(X; T) = sum_t P(t) KL(P(X | t), P(X)).
  function information(target, evidence) {
    const now = posteriors(evidence);
    if (now === null) return null;
    const bits = new Float64Array(card.length);
    const given = evidence.slice();
    for (let t = 0; t < card[target]; t += 1) {
      const weight = now.p[start[target] + t];
      given[target] = t;
      const then = weight > 0 ? posteriors(given) : null;
      if (then === null) continue;
      for (let v = 0; v < card.length; v += 1)
        for (let k = start[v]; k < start[v + 1]; k += 1)
          if (then.p[k] > 0 && now.p[k] > 0)
            bits[v] += weight * then.p[k] * Math.log2(then.p[k] / now.p[k]);
    }
    return bits.map((b) => Math.max(b, 0));
  }

  // Some of the observations that are impossible together, none of which can be left out; what is
  // set stays.
  function conflict(evidence) {
    const left = evidence.slice();
    for (let v = 0; v < left.length; v += 1) {
      if (left[v] < 0 || acted.has(v)) continue;
      const state = left[v];
      left[v] = -1;
      if (collect(left, true) !== null) left[v] = state;
    }
    return left;
  }

  return { card, start, soften, act, settable, posteriors, explanation, information, conflict };
}
