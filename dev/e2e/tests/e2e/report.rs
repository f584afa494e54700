//! `wireup report` in a browser: the page shows what the trace says.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use wireup_e2e::folders::Folder;
use wireup_e2e::{Run, is_night, wireup};

/// Presses keys on the timeline, as a person would, and leaves what the page then says in its title.
const PRESS: &str = "<script>
    const timeline = document.querySelector('canvas');
    const press = (key) => timeline.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    ['ArrowDown', 'ArrowDown'].forEach(press);
    const node = document.querySelector('figure .status').textContent;
    ['Enter', '+', 'ArrowRight'].forEach(press);
    const texts = [...document.querySelectorAll('figure p')].map((one) => one.textContent);
    ['Escape', 'Home'].forEach(press);
    document.title = [node, ...texts, document.querySelector('figure p').textContent].join(' | ');
</script></body>";

/// The page after its scripts have run; `None`: there is no Chromium here.
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

/// The texts of the cells of each row of a run with this mark, by the mark's value.
fn rows(dom: &str, mark: &str) -> BTreeMap<String, Vec<String>> {
    let row = |row: &str| {
        let value = row.split_once(&format!("data-{mark}=\""))?.1.split_once('"')?.0.to_owned();
        let cells = row.split_once("</tr>")?.0.split("<td").skip(1).map(text);
        Some((value, cells.collect()))
    };
    dom.split("<tr").filter_map(row).collect()
}

/// The text of an HTML element, given what follows the name of its opening tag.
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
            // Each rounds to microseconds in its own way.
            assert!((number - cell).abs() < 0.0015, "{name}: {number} {cell}: {printed}");
        }
    }
    assert!(shown.contains_key("fence 0: wait") && shown.contains_key("fence 1: move"), "{shown:?}");
    let title = one.split_once("<title>").expect("a title").1.split_once("</title>").expect("its end").0;
    for words in ["2 ranks of node2", "rank 4", "start ranks", " | 3 nodes, 0 µs to "] {
        assert!(title.contains(words), "{words}: {title}");
    }
    let slowest = &rows(&one, "slowest")["Start agents"][5];
    let node = slowest.split(", ").find(|node| node.starts_with("node2 ")).expect("a node").replace("node2 ", "");
    assert!(title.contains(&format!("node2: start agents {node}")), "the row begins with the remote shell: {title}");
    let differences = rows(&two, "difference");
    assert_eq!(differences["total"][3], "0.000", "a run compared with itself: {differences:?}");
    assert!(two.contains("data-drawn-ms"), "the page of two runs is drawn");
}
