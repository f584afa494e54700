//! `wireup report` in a browser: the page shows the times of the trace.

use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use wireup_e2e::folders::Folder;
use wireup_e2e::{Run, is_night, wireup};

/// A script that presses keys on the timeline, points at it and drags over it, as a user would, and puts the resulting
/// texts of the page into its title.
const PRESS: &str = "<script>
    const timeline = document.querySelector('canvas');
    const press = (key) => timeline.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    ['ArrowDown', 'ArrowDown'].forEach(press);
    const node = document.querySelector('figure .status').textContent;
    ['Enter', '+', 'ArrowRight'].forEach(press);
    const texts = [...document.querySelectorAll('figure p')].map((one) => one.textContent);
    ['Escape', 'Home'].forEach(press);
    const textOf = (which) => document.querySelector(`figure ${which}`).textContent;
    const whole = textOf('p');
    const over = document.querySelector('.u-over');
    const box = over.getBoundingClientRect();
    const mouse = (type, part) => over.dispatchEvent(new MouseEvent(type, {
        bubbles: true, clientX: box.left + part * box.width, clientY: box.top + 5, movementX: 1,
    }));
    mouse('mousemove', 0.99);
    const pointed = textOf('.status');
    mouse('mousedown', 0.25);
    mouse('mousemove', 0.5);
    mouse('mouseup', 0.5);
    queueMicrotask(() => { document.title = [node, ...texts, whole, pointed, textOf('p')].join(' | '); });
</script></body>";

/// A script that counts what the timeline draws and the page's elements, and puts both counts into the page's title.
const COUNT: &str = "<script>
    let marks = 0;
    const { fillRect } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillRect = function (...place) { marks += 1; fillRect.apply(this, place); };
    window.addEventListener('load', () => {
        document.title = `${marks} ${document.querySelectorAll('*').length}`;
    });
</script></head>";
const LARGE_NODES: u64 = 16_384;
/// Maximum size of the page's data for each node (bytes; chosen: twice the size with a fence and one rank on each
/// node).
const NODE_BYTES_MAX: u64 = 1024;

/// The page's HTML after its scripts have run in Chromium; `None`: Chromium is not installed.
fn opened(page: &Path) -> Option<String> {
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    match chromium.arg(format!("file://{}", page.display())).output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) if is_night() => panic!("chromium: {error}"),
        Err(error) => {
            println!("SKIPPED: chromium: {error}");
            None
        }
    }
}

/// The texts of the cells of each table row that has the attribute `mark`, by the value of `mark`.
fn rows(dom: &str, mark: &str) -> BTreeMap<String, Vec<String>> {
    let row = |row: &str| {
        let value = row.split_once(&format!("data-{mark}=\""))?.1.split_once('"')?.0.to_owned();
        let cells = row.split_once("</tr>")?.0.split("<td").skip(1).map(text);
        Some((value, cells.collect()))
    };
    dom.split("<tr").filter_map(row).collect()
}

/// The text of an HTML element, given the page's text after the name of the element's opening tag.
fn text(element: &str) -> String {
    let parts = element.split('>').skip(1).map(|part| part.split('<').next().unwrap_or_default());
    parts.collect()
}

#[test]
fn a_page_shows_the_numbers_of_the_profile() {
    let folder = Folder::new("report");
    let [trace, page, own] = ["trace", "page.html", "own.html"].map(|name| folder.0.join(name));
    let outcome = Run::job("-n 6 --virtual-nodes 3 --report").arg(&own).arg("--profile").arg(&trace).arg(wireup());
    let outcome = outcome.args(["pmi", "exchange", "--rounds", "2"]).succeed();
    let both = [trace.as_os_str(), trace.as_os_str()];
    Run::wireup(["report".as_ref(), both[0], both[1], "-o".as_ref(), page.as_os_str()]).succeed();
    let single = fs::read_to_string(&own).expect("the page of the run itself");
    fs::write(&own, single.replace("</body>", PRESS)).unwrap();
    let (Some(two), Some(one)) = (opened(&page), opened(&own)) else { return };

    let shown = rows(&one, "phase");
    let printed = outcome.err();
    let names = ["total", "resolve", "start agents", "connect", "send job", "spawn", "init", "run", "drain"];
    for name in names {
        let line = printed.lines().find(|line| line.contains(&format!("/-- {name}:"))).expect(name);
        let numbers = line.split_once(':').expect(name).1.split_whitespace().take(2);
        for (number, cell) in numbers.zip(&shown[name][1..]) {
            let [number, cell] = [number, cell.as_str()].map(|text| text.parse::<f64>().expect("milliseconds"));
            // The page and the printed report round to microseconds in different ways.
            assert!((number - cell).abs() < 0.0015, "{name}: {number} {cell}: {printed}");
        }
    }
    assert!(shown.contains_key("fence 0: wait") && shown.contains_key("fence 1: move"), "{shown:?}");
    let title = one.split_once("<title>").expect("a title").1.split_once("</title>").expect("its end").0;
    for words in ["2 ranks of node2", "rank 4", "start ranks", " | 3 nodes, 0 µs to "] {
        assert!(title.contains(words), "{words}: {title}");
    }
    let [pointed, dragged] = [2, 1].map(|from_end| title.rsplit(" | ").nth(from_end - 1).expect("a text"));
    assert!(pointed.starts_with("node0 at "), "the mouse is over the first row: {title}");
    assert!(dragged.starts_with("3 nodes, ") && !dragged.contains(" 0 µs to "), "a drag zooms: {title}");
    let slowest = &rows(&one, "slowest")["Start agents"][5];
    let node = slowest.split(", ").find(|node| node.starts_with("node2 ")).expect("a node").replace("node2 ", "");
    assert!(title.contains(&format!("node2: start agents {node}")), "the row begins with the remote shell: {title}");
    let differences = rows(&two, "difference");
    assert_eq!(differences["total"][3], "0.000", "a run compared with itself: {differences:?}");
    assert!(two.contains("data-drawn-ms"), "the page of two runs is drawn");
}

/// The page of a run with `--expect` compares phases of the start with a simulation, and leaves out what a simulation
/// knows nothing about.
#[test]
fn a_run_is_compared_with_what_was_expected() {
    let folder = Folder::new("expectation");
    let [trace, page] = ["expected", "page.html"].map(|name| folder.0.join(name));
    let words = "-n 6 --nodes 3 --start local --exchange fence --profile".split(' ').map(Into::into);
    assert_eq!(wireup_simulate::main(words.chain([trace.clone().into()]).collect()), 0);
    // Used unless the real program is next to wireup.
    folder.program("wireup-simulate", &format!("cat {}", trace.display()));
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap_or_default());
    let job = Run::job("-n 6 --virtual-nodes 3 --expect --report").arg(&page).arg(wireup()).env("PATH", path);
    job.args(["pmi", "exchange", "--rounds", "2"]).succeed();
    let refused = Run::job("-n 1 --expect /bin/true").finish().expect_code(125);
    refused.expect_err_line(&["--expect is shown in the page of --report"]);
    let Some(dom) = opened(&page) else { return };

    let differences = rows(&dom, "difference");
    for name in ["run", "fence 1: wait", "other"] {
        assert_eq!(differences[name][1], "not predicted", "{name}: {differences:?}");
    }
    let number = |cell: &String| cell.parse::<f64>().expect("milliseconds");
    let of = |name: &str| [1, 2, 3].map(|cell| number(&differences[name][cell]));
    let compared: Vec<&String> =
        differences.keys().filter(|name| differences[*name][1].parse::<f64>().is_ok()).collect();
    let phases = compared.iter().filter(|name| **name != "total");
    let sum = phases.clone().map(|name| of(name)).fold([0.0; 3], |sum, one| [0, 1, 2].map(|at| sum[at] + one[at]));
    let total = of("total");
    // Each cell is rounded to microseconds.
    assert!((0..3).all(|at| (sum[at] - total[at]).abs() < 0.02), "{sum:?}: {differences:?}");
    assert!(differences["total"][0].starts_with("Total of what is predicted"), "{differences:?}");
    for name in ["start agents", "spawn", "fence 0: move"] {
        assert!(compared.iter().any(|one| *one == name), "{name}: {differences:?}");
    }
    let largest = phases.max_by(|one, other| of(one)[2].abs().total_cmp(&of(other)[2].abs())).expect("a phase");
    let label = &differences[*largest][0];
    let said = text(dom.split_once("id=\"difference\"").expect("a sentence").1.split_once("</p>").expect("its end").0);
    assert!(said.contains(&format!("The largest difference is in “{label}”")), "{said} {differences:?}");
    assert!(dom.contains("Actual (ms)") && dom.contains("The simulation"), "the columns and the runs are named");
}

/// A trace of `count` nodes. Nodes beyond those of `trace` are like its last node, each a little later than the one
/// before.
fn with_nodes(trace: &Json, count: u64) -> Json {
    let events = trace["traceEvents"].as_array().expect("events");
    let last = events.iter().filter_map(|event| event["pid"].as_u64()).max().expect("a node");
    // In the trace, a node is a "process" and process 0 is the launcher.
    let alike = |pid: u64| {
        let of_last = events.iter().filter(|event| event["pid"] == last);
        of_last.map(move |event| {
            let (mut event, node) = (event.clone(), pid - 1);
            event["pid"] = pid.into();
            event["ts"] = (event["ts"].as_f64().expect("a time") + (node % 97) as f64 * 10.0).into();
            let is_rank = event["tid"] != 0;
            if is_rank {
                event["tid"] = pid.into();
            }
            match event["name"].as_str() {
                Some("process_name") => event["args"]["name"] = format!("node {node} node{node}").into(),
                Some("thread_name") if is_rank => event["args"]["name"] = format!("rank {node}").into(),
                _ if event["args"].get("last_rank").is_some() => event["args"]["last_rank"] = node.into(),
                _ => {}
            }
            event
        })
    };
    let all: Vec<Json> = events.iter().cloned().chain((last + 1..=count).flat_map(alike)).collect();
    let mut larger = trace.clone();
    larger["traceEvents"] = json!(all);
    larger
}

/// A browser opens the page of a large job as fast as it can read the data: the number of elements that it draws does
/// not grow with the job.
#[test]
fn a_page_of_many_nodes_draws_no_more_than_one_of_few() {
    let folder = Folder::new("large-report");
    let [trace, page] = ["trace", "page.html"].map(|name| folder.0.join(name));
    let job = Run::job("-n 3 --virtual-nodes 3 --profile").arg(&trace).arg(wireup());
    job.args(["pmi", "exchange", "--rounds", "1"]).succeed();
    let small: Json = serde_json::from_slice(&fs::read(&trace).expect("a trace")).expect("JSON");
    let drawn = [64, LARGE_NODES].map(|count| {
        fs::write(&trace, with_nodes(&small, count).to_string()).expect("room for the trace");
        Run::wireup(["report".as_ref(), trace.as_os_str(), "-o".as_ref(), page.as_os_str()]).succeed();
        let text = fs::read_to_string(&page).expect("a page");
        let size = text.len() as u64;
        assert!(count < LARGE_NODES || size < count * NODE_BYTES_MAX, "{size} bytes for {count} nodes");
        fs::write(&page, text.replacen("</head>", COUNT, 1)).expect("room for the page");
        let dom = opened(&page)?;
        let title = dom.split_once("<title>")?.1.split_once("</title>")?.0;
        let numbers: Vec<u64> = title.split(' ').filter_map(|number| number.parse().ok()).collect();
        let ms = dom.split_once("data-drawn-ms=\"").expect("the page is drawn").1.split('"').next();
        println!("{count} nodes: {size} bytes, {numbers:?} marks and elements, drawn after {} ms", ms.unwrap_or("?"));
        Some(<[u64; 2]>::try_from(numbers).expect("both numbers"))
    });
    let [Some([few_marks, few_elements]), Some([marks, elements])] = drawn else { return };
    assert!(few_marks > 0 && marks <= 2 * few_marks, "{marks} marks, {few_marks} with few nodes");
    assert!(elements <= 2 * few_elements, "{elements} elements, {few_elements} with few nodes");
}
