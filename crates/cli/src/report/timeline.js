// The timeline.

// ---- Lanes: for each node, or each rank of one node, which phase it was in from when to when. ----

class Lanes {
    constructor(names) {
        this.names = names;
        this.count = names.length;
        this.segments = names.map(() => []);
    }

    // A lane is in one phase at a time: a segment begins where the one before ends.
    push(lane, key, from, to) {
        const segments = this.segments[lane];
        const begin = Math.max(from, segments.length ? segments[segments.length - 1] : 0);
        if (to > begin) segments.push(KEYS.indexOf(key), begin, to);
    }

    each(lane, visit) {
        const segments = this.segments[lane];
        for (let at = 0; at < segments.length; at += 3) visit(segments[at], segments[at + 1], segments[at + 2]);
    }
}

// The phases of nodes: a phase of a node lasts until the last rank of the node has left it.
function nodeLanes(run) {
    const lanes = new Lanes(run.nodes.map((node) => node.name));
    const lastOf = (spans) => {
        const last = new Float64Array(lanes.count);
        spans.forEach((span) => { last[span.node] = Math.max(last[span.node], span.to); });
        return last;
    };
    const each = (key, spans) => spans.forEach((span) => lanes.push(span.node, key, span.from, span.to));
    const all = (key, last) => last.forEach((to, node) => lanes.push(node, key, 0, to));
    const { bootstrap, connect, job, spawn, init, run: running, exit } = run.phaseSpans;
    each("stage", spansOf(run, "stage"));
    // From the call of the remote shell, or of the one that starts the node's parent.
    const called = launcherSpan(run, "resolve")?.to ?? Infinity;
    bootstrap.forEach((span) => lanes.push(span.node, "start agents", Math.min(called, span.from), span.to));
    each("connect", connect);
    each("send job", job);
    spawn.forEach((span) => lanes.push(span.node, "hold", 0, span.from));
    each("spawn", spawn);
    all("init", lastOf(init));
    for (const one of run.rounds) {
        one.node.forEach((node, at) => {
            if (lanes.segments[node].length) lanes.push(node, "run", 0, one.first_in[at]);
            lanes.push(node, "wait", one.first_in[at], Math.min(one.lastIn, one.left[at]));
            lanes.push(node, "move", one.lastIn, one.left[at]);
        });
    }
    all("run", lastOf(running.concat(exit)));
    each("stage", spansOf(run, "stage out"));
    return lanes;
}

function rankLanes(run, node) {
    const { exec, init, run: running, exit } = run.phaseSpans;
    const here = (spans) => spans.filter((span) => span.node === node);
    const ranks = here(exec).map((span) => span.rank).sort((one, other) => one - other);
    const lanes = new Lanes(ranks.map((rank) => `rank ${rank}`));
    const lane = new Map(ranks.map((rank, at) => [rank, at]));
    for (const [key, spans] of [["spawn", exec], ["init", init], ["run", running], ["drain", exit]]) {
        here(spans).forEach((span) => lanes.push(lane.get(span.rank), key, span.from, span.to));
    }
    return lanes;
}

// ---- The timeline: rows of one or of many lanes, on a canvas. ----

const GUTTER = 170;
const AXIS = 24;
const ROWS_MAX = 32;
const ROW_GAP = 2;

class Timeline {
    constructor(run, end) {
        this.run = run;
        this.whole = [0, end];
        this.time = [0, end];
        this.lanes = nodeLanes(run);
        this.range = [0, this.lanes.count];
        this.above = [];
        this.selected = 0;
        this.canvas = el("canvas", {
            tabIndex: 0, role: "application",
            ariaLabel: `Timeline of ${run.title}. Arrow keys move, plus and minus zoom, Enter opens a row, Escape goes`
                + " back.",
        });
        this.status = el("p", { className: "status", role: "status" });
        this.where = el("p", { className: "faint" });
        const button = (name, act) => el("button", { type: "button", onclick: () => this.act(act) }, name);
        this.element = el("figure", { style: "margin: 0" },
            el("div", { className: "tools" },
                button("Zoom in", "+"), button("Zoom out", "-"), button("Earlier", "ArrowLeft"),
                button("Later", "ArrowRight"), button("Open the selected row", "Enter"), button("Back", "Escape"),
                button("Show everything", "Home")),
            this.where, this.canvas, this.status);
        this.canvas.addEventListener("keydown", (event) => {
            if (!event.ctrlKey && !event.metaKey && !event.altKey && this.act(event.key)) event.preventDefault();
        });
        this.canvas.addEventListener("pointermove", (event) => this.onPointer(event));
        this.canvas.addEventListener("click", (event) => {
            const row = this.rowAt(event.offsetY);
            if (row === null) return;
            this.selected = row;
            this.act("Enter");
        });
    }

    get rows() {
        return Math.max(1, Math.min(ROWS_MAX, this.range[1] - this.range[0]));
    }

    // The lanes of a row: from, to.
    lanesOf(row) {
        const [first, last] = this.range;
        const edge = (at) => first + Math.floor(((last - first) * at) / this.rows);
        return [edge(row), edge(row + 1)];
    }

    act(key) {
        const [from, to] = this.time;
        const span = to - from;
        const moves = {
            ArrowLeft: () => this.show(from - span / 5, span),
            ArrowRight: () => this.show(from + span / 5, span),
            "+": () => this.show(from + span / 4, span / 2),
            "-": () => this.show(from - span / 2, span * 2),
            ArrowUp: () => this.select(this.selected - 1),
            ArrowDown: () => this.select(this.selected + 1),
            Enter: () => this.open(),
            Escape: () => this.back(),
            Home: () => {
                while (this.above.length) this.back();
                this.time = this.whole.slice();
            },
        };
        moves["="] = moves["+"];
        if (!moves[key]) return false;
        moves[key]();
        this.draw();
        this.tell(this.rowText(this.selected));
        return true;
    }

    select(row) {
        this.selected = Math.min(Math.max(row, 0), this.rows - 1);
    }

    show(from, span) {
        const most = this.whole[1];
        const length = Math.min(Math.max(span, 1), most);
        const begin = Math.min(Math.max(from, 0), most - length);
        this.time = [begin, begin + length];
    }

    open() {
        const [first, last] = this.lanesOf(this.selected);
        const isRanks = this.above.some((view) => view.lanes !== this.lanes);
        if (last - first === 1 && isRanks) return;
        const view = { lanes: this.lanes, range: this.range, selected: this.selected, name: this.name };
        if (last - first > 1) this.range = [first, last];
        else {
            const lanes = rankLanes(this.run, first);
            if (!lanes.count) return;
            this.name = this.lanes.names[first];
            this.lanes = lanes;
            this.range = [0, lanes.count];
        }
        this.above.push(view);
        this.selected = 0;
    }

    back() {
        if (this.above.length) Object.assign(this, this.above.pop());
    }

    tell(words) {
        this.status.textContent = words;
    }

    rowName(row) {
        const [first, last] = this.lanesOf(row);
        const { names } = this.lanes;
        if (last - first === 1) return names[first];
        return `${names[first]} to ${names[last - 1]} (${(last - first).toLocaleString("en")})`;
    }

    // How long the lanes of a row were in each phase, on average.
    rowText(row) {
        const [first, last] = this.lanesOf(row);
        const sums = new Float64Array(KEYS.length);
        for (let lane = first; lane < last; lane += 1) {
            this.lanes.each(lane, (phase, from, to) => { sums[phase] += to - from; });
        }
        const parts = KEYS.flatMap((key, at) =>
            (sums[at] > 0 ? [`${PHASES[key][0].toLowerCase()} ${shortTime(sums[at] / (last - first))}`] : []));
        const average = last - first > 1 ? ", on average" : "";
        return `${this.rowName(row)}${average}: ${parts.join(", ") || "nothing recorded"}.`;
    }

    rowAt(y) {
        const row = Math.floor((y - AXIS) / (this.rowHeight + ROW_GAP));
        return row >= 0 && row < this.rows ? row : null;
    }

    onPointer(event) {
        const row = this.rowAt(event.offsetY);
        if (row === null || event.offsetX < GUTTER) return;
        const at = this.time[0] + ((event.offsetX - GUTTER) / this.width) * (this.time[1] - this.time[0]);
        const [first, last] = this.lanesOf(row);
        const counts = new Map();
        for (let lane = first; lane < last; lane += 1) {
            this.lanes.each(lane, (phase, from, to) => {
                if (from <= at && at < to) counts.set(phase, (counts.get(phase) || 0) + 1);
            });
        }
        const parts = [...counts].sort((one, other) => other[1] - one[1]).map(([phase, count]) => {
            const name = PHASES[KEYS[phase]][0].toLowerCase();
            return last - first > 1 ? `${count.toLocaleString("en")} ${name}` : name;
        });
        this.tell(`${this.rowName(row)} at ${shortTime(at)}: ${parts.join(", ") || "nothing recorded"}`);
    }

    draw() {
        const style = getComputedStyle(document.documentElement);
        const color = (name) => style.getPropertyValue(`--${name}`).trim();
        const { canvas } = this;
        this.rowHeight = this.rows <= 4 ? 30 : this.rows <= 16 ? 22 : 15;
        const [width, height] = [canvas.clientWidth || 900, AXIS + this.rows * (this.rowHeight + ROW_GAP)];
        const scale = window.devicePixelRatio || 1;
        canvas.style.height = `${height}px`;
        [canvas.width, canvas.height] = [width * scale, height * scale];
        this.width = Math.max(1, width - GUTTER);
        const pen = canvas.getContext("2d");
        pen.scale(scale, scale);
        pen.font = "12px system-ui, sans-serif";
        pen.textBaseline = "middle";
        this.drawAxis(pen, color, height);
        const fills = KEYS.map((key) => color(key.replace(" ", "-")));
        for (let row = 0; row < this.rows; row += 1) {
            const y = AXIS + row * (this.rowHeight + ROW_GAP);
            this.drawRow(pen, row, y, fills);
            pen.fillStyle = color("ink");
            pen.fillText(this.rowName(row), 6, y + this.rowHeight / 2, GUTTER - 12);
            if (row === this.selected) {
                pen.strokeStyle = color("accent");
                pen.lineWidth = 2;
                pen.strokeRect(1, y - 1, width - 2, this.rowHeight + 2);
            }
        }
        const coarse = this.name ? " Collectives are recorded for nodes only." : "";
        const inside = this.name ? ` of ${this.name}` : "";
        const noun = this.name ? "rank" : "node";
        const [first, last] = this.range;
        const each = last - first > this.rows
            ? ` Each row stands for about ${Math.round((last - first) / this.rows).toLocaleString("en")} ${noun}s; the`
                + ` height of a colour is the share of them in that phase.` : "";
        if (!this.status.textContent) this.tell(this.rowText(this.selected));
        this.where.textContent = `${plural(last - first, noun)}${inside}, ${shortTime(this.time[0])} to`
            + ` ${shortTime(this.time[1])}.${each}${coarse}`;
    }

    drawAxis(pen, color, height) {
        const [from, to] = this.time;
        const raw = ((to - from) / this.width) * 110;
        const power = 10 ** Math.floor(Math.log10(raw));
        const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw);
        pen.strokeStyle = color("line");
        pen.fillStyle = color("faint");
        for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
            const x = GUTTER + ((at - from) / (to - from)) * this.width;
            pen.beginPath();
            pen.moveTo(x, AXIS - 4);
            pen.lineTo(x, height);
            pen.stroke();
            const label = shortTime(Math.round(at * 1000) / 1000);
            pen.fillText(label, Math.min(x + 3, GUTTER + this.width - pen.measureText(label).width), AXIS / 2);
        }
    }

    // In each column of pixels the phases are stacked by the share of the row's lanes that are in them.
    drawRow(pen, row, y, fills) {
        const [from, to] = this.time;
        const [first, last] = this.lanesOf(row);
        const columns = Math.ceil(this.width);
        const shares = KEYS.map(() => null);
        for (let lane = first; lane < last; lane += 1) {
            this.lanes.each(lane, (phase, begin, end) => {
                if (end <= from || begin >= to) return;
                shares[phase] ??= new Float64Array(columns + 2);
                const x = (at) => ((Math.min(Math.max(at, from), to) - from) / (to - from)) * columns;
                spread(shares[phase], x(begin), x(end));
            });
        }
        const used = KEYS.map((_, phase) => phase).filter((phase) => shares[phase]);
        const sums = new Float64Array(KEYS.length);
        for (let column = 0; column < columns; column += 1) {
            let top = 0;
            for (const phase of used) {
                // The entries are changes of the share from one column to the next.
                sums[phase] += shares[phase][column];
                const share = sums[phase] / (last - first);
                if (share < 1e-6) continue;
                pen.fillStyle = fills[phase];
                // A share of few lanes among many is still visible.
                pen.fillRect(GUTTER + column, y + top, 1, Math.max(share * this.rowHeight, 0.5));
                top += share * this.rowHeight;
            }
        }
    }
}

// Adds 1 to the columns between two places, and parts of 1 at both ends, as changes from each column to the next.
function spread(changes, from, to) {
    for (const [edge, sign] of [[from, 1], [to, -1]]) {
        const column = Math.floor(edge);
        changes[column] += sign * (column + 1 - edge);
        changes[column + 1] += sign * (edge - column);
    }
}
