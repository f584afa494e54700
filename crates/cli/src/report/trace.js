"use strict";

// What a trace says: the phases of the job, its collectives, the spans of nodes and ranks. Times are microseconds since
// the start of the launcher.

// ---- The phases of a start, in order: what each is called and what it means. ----

const PHASES = {
    "resolve": ["Prepare the job", "The launcher finds hosts, programs and libraries."],
    "stage": ["Copy files", "Files are copied to the nodes before the ranks start, or back after they have ended."],
    "start agents": ["Start agents", "ssh, or what is used in its place, starts an agent of wireup on each node."],
    "connect": ["Connect agents", "Each agent connects to its parent in the tree of agents."],
    "send job": ["Send the job", "The description of the job travels down the tree to every agent."],
    "hold": ["Wait to start ranks", "The node waits until its ranks may start, usually until all nodes are connected."],
    "spawn": ["Start ranks", "The agents create the processes of their ranks."],
    "init": ["Load and initialize", "Each rank loads its libraries and runs until it first contacts wireup."],
    "wait": ["Wait for the last rank", "Ranks wait in a collective until the last rank has entered it."],
    "move": ["Exchange data", "wireup exchanges the data of a collective after the last rank has entered."],
    "run": ["Run the program", "The ranks run."],
    "drain": ["Shut down", "The last output arrives and the agents exit."],
    "other": ["Everything else", "Mostly the ranks' own work before the first collective and between collectives."],
};
const KEYS = Object.keys(PHASES);
// What the launcher does about staged files, by the name of its span. The span `stage` consists of the others.
const STAGING = {
    "start session": "Start a session for staging", "look": "Find the files to copy",
    "ask": "Ask nodes which files they lack", "send": "Send files to nodes", "stage out": "Copy files back",
};
const LAUNCHER_SPANS = ["resolve", "begin", "start", "run", "leave"];
const COLLECTIVES_SHOWN = 8;
const SLOWEST_SHOWN = 5;

const maximum = (values) => values.reduce((most, value) => (value > most ? value : most), -Infinity);
const minimum = (values) => values.reduce((least, value) => (value < least ? value : least), Infinity);

// The collectives in the order of their numbers, with what all nodes together say of each.
function collectivesOf(run) {
    const all = Object.entries(run.collectives).map(([name, one]) => {
        const last = one.last_in.reduce((best, at, index) => (at > one.last_in[best] ? index : best), 0);
        return {
            ...one, name, from: minimum(one.first_in), lastIn: one.last_in[last], to: maximum(one.left),
            bytes: maximum(one.bytes_down), lastRank: one.last_rank[last], lastNode: one.node[last],
        };
    });
    return all.sort((one, other) => one.from - other.from || one.lastIn - other.lastIn);
}

// The spans of agents or ranks with this name, as { node, rank, from, to }; those of the launcher are left out.
function spansOf(run, name) {
    const all = run.spans[name];
    if (!all) return [];
    const spans = [];
    for (let at = 0; at < all.node.length; at += 1) {
        if (all.node[at] < 0) continue;
        const from = all.from[at];
        spans.push({ node: all.node[at], rank: all.rank[at], from, to: from + all.took[at] });
    }
    return spans;
}

function launcherSpan(run, name) {
    const all = run.spans[name];
    const at = all ? all.node.indexOf(-1) : -1;
    return at < 0 ? null : { from: all.from[at], to: all.from[at] + all.took[at] };
}

const ends = (spans) => maximum(spans.map((span) => span.to));
const starts = (spans) => minimum(spans.map((span) => span.from));

function analyse(run, index, all) {
    const of = (name) => spansOf(run, name);
    // The root agent is the launcher or runs next to it: it connects to nobody.
    const connected = of("connect");
    const isBelow = new Set(connected.map((span) => span.node));
    const below = of("bootstrap").filter((span) => isBelow.has(span.node));
    const spans = {
        bootstrap: below, connect: connected, job: of("receive job"), exec: of("exec"), init: of("load and init"),
        run: of("run").filter((span) => span.rank >= 0), exit: of("exit"), spawn: of("spawn"),
    };
    const staged = Object.keys(STAGING).filter((name) => launcherSpan(run, name));
    const found = {
        ...run, index, staged, phaseSpans: spans, rounds: collectivesOf(run), ranks: spans.exec.length,
        end: maximum(LAUNCHER_SPANS.concat(staged).map((name) => launcherSpan(run, name)?.to ?? 0)),
    };
    found.title = titleOf(run, index, all);
    found.rows = phaseRows(found);
    return found;
}

function titleOf(run, index, all) {
    const kind = (one) => (one.about.simulated ? "prediction" : "run");
    if (all.length === 1) return `The ${kind(run)}`;
    if (kind(all[0]) !== kind(all[1])) return run.about.simulated ? "The simulation" : "The real run";
    return run.about.simulated ? `Prediction ${"AB"[index]}` : `Run ${"AB"[index]}`;
}

// One row for each phase of the whole job, as wireup run --profile prints them. `adds` counts each moment once: what no
// row above covers.
function phaseRows(run) {
    const { bootstrap, connect, job, exec, init, run: running, exit, spawn } = run.phaseSpans;
    const rows = [];
    const add = (key, name, from, to, count) => {
        if (Number.isFinite(from) && Number.isFinite(to)) rows.push({ key, name, from, to: Math.max(from, to), count });
    };
    const staged = run.staged.map((name) => ({ name, ...launcherSpan(run, name) }));
    const early = staged.filter((span) => span.name !== "stage out");
    const resolved = launcherSpan(run, "resolve")?.to ?? 0;
    add("resolve", "resolve", 0, Math.min(resolved, starts(early)));
    early.forEach((span) => add("stage", span.name, span.from, span.to));
    add("start agents", "start agents", resolved, ends(bootstrap), bootstrap.length);
    add("connect", "connect", Math.min(minimum(bootstrap.map((span) => span.to)), starts(connect)), ends(connect),
        connect.length);
    add("send job", "send job", resolved, ends(job), job.length);
    add("spawn", "spawn", Math.min(starts(spawn), starts(exec)), ends(exec), exec.length);
    add("init", "init", minimum(exec.map((span) => span.to)), ends(init), init.length);
    run.rounds.slice(0, COLLECTIVES_SHOWN).forEach((one) => {
        add("wait", `${one.name}: wait`, one.from, one.lastIn);
        add("move", `${one.name}: move`, one.lastIn, one.to);
    });
    const later = run.rounds.slice(COLLECTIVES_SHOWN);
    add("move", "later collectives", minimum(later.map((one) => one.from)), maximum(later.map((one) => one.to)),
        later.length);
    const begun = Math.max(ends(exec), ends(init), maximum(run.rounds.map((one) => one.to)));
    const ended = Math.max(ends(running), ends(exit));
    add("run", "run", begun, ended, running.length);
    add("drain", "drain", ended, launcherSpan(run, "leave")?.to ?? run.end);
    staged.filter((span) => !early.includes(span)).forEach((span) => add("stage", span.name, span.from, span.to));
    let counted = 0;
    rows.forEach((row, at) => {
        const length = covered(rows.slice(0, at + 1), run.end);
        [row.adds, counted] = [length - counted, length];
    });
    rows.push({ key: "other", name: "other", from: null, to: null, adds: run.end - counted });
    return rows;
}

// The length of the union of stretches of time, up to an end.
function covered(stretches, end) {
    const sorted = stretches.slice().sort((one, other) => one.from - other.from);
    let [length, reached] = [0, 0];
    for (const { from, to } of sorted) {
        length += Math.max(0, Math.min(to, end) - Math.max(from, reached));
        reached = Math.max(reached, Math.min(to, end));
    }
    return length;
}

function rowLabel(row) {
    const [collective, part] = row.name.split(": ");
    if (part) return `${PHASES[row.key][0]} (${collective})`;
    if (row.key === "stage") return STAGING[row.name];
    return row.name === "later collectives" ? "Later collectives" : PHASES[row.key][0];
}
