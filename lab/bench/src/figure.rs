//! An SVG file that contains the data of its figure, so that it can be drawn again.
//!
//! The data are JSON in the element `metadata`. The figures in the documentation are files that `--svg` has written; a
//! test draws each again from its data, and `BLESS=1 cargo test -p wireup-bench --lib figure` replaces the files.
use serde::Serialize;

const BEGIN: &str = "<metadata><![CDATA[\n";
const END: &str = "\n]]></metadata>\n";

/// Adds the data to a drawing.
pub fn with_data(drawing: &str, data: &impl Serialize) -> Option<String> {
    let json = serde_json::to_string_pretty(data).ok()?;
    let rest = drawing.strip_suffix("</svg>\n").or_else(|| drawing.strip_suffix("</svg>"))?;
    Some(format!("{rest}{BEGIN}{json}{END}</svg>\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::Bars;
    use crate::startup::chart::Chart;
    use std::fs;
    use std::path::Path;

    fn data(file: &str) -> Option<&str> {
        Some(file.split_once(BEGIN)?.1.split_once(END)?.0)
    }

    /// The figure of the file, drawn from its data.
    fn drawn(file: &'static str) -> Option<String> {
        let data = data(file)?;
        let chart = serde_json::from_str::<Chart>(data).map(|chart| chart.draw());
        chart.or_else(|_| serde_json::from_str::<Bars>(data).map(|bars| bars.draw())).ok()?
    }

    #[test]
    fn figures_of_the_documentation_are_drawn_from_their_data() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures");
        let mut count = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let file: &'static str = fs::read_to_string(&path).unwrap().leak();
            let again = drawn(file).unwrap_or_else(|| panic!("{}: no data", path.display()));
            if std::env::var_os("BLESS").is_some() {
                fs::write(&path, &again).unwrap();
            } else {
                assert!(again == file, "{} differs from its data", path.display());
            }
            assert!(again.contains("lower is better") || again.contains("higher is better"), "{}", path.display());
            count += 1;
        }
        assert!(count >= 5, "{count}");
    }
}
