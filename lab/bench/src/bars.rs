//! An SVG figure of bars: a panel for each case, a bar for each launcher, the range of the values as an error bar.
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::{Deserialize, Serialize};

use crate::figure::with_data;
use crate::startup::chart::{BELOW_NOTE, DrawResult, FONT, NOTE_HEIGHT, TITLE_HEIGHT, begin, number};

const WIDTH: u32 = 980;
/// Panels side by side.
const COLUMNS: usize = 2;
/// Left of the bars, for their names.
const NAMES_WIDTH: i32 = 120;
/// Right of the longest bar, for its value.
const VALUE_WIDTH: i32 = 60;
const BAR_HEIGHT: i32 = 24;
const BAR_STEP: i32 = 29;
/// Above the bars, for the panel's title, and below them, for the axis.
const ABOVE: i32 = 34;
const BELOW: i32 = 52;
const OWN: RGBColor = RGBColor(213, 94, 0);
const OTHERS: RGBColor = RGBColor(86, 180, 233);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    pub name: String,
    pub value: f64,
    /// The smallest and the largest value; `None` if they were not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    pub title: String,
    /// The meaning of the values, with their unit.
    pub values: String,
    pub bars: Vec<Bar>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// What is shown, and whether lower or higher values are better.
    pub title: String,
    /// The name of the bars that stand out.
    pub own: String,
    pub panels: Vec<Panel>,
    /// Lines below the panels.
    pub note: String,
}

impl Bars {
    /// The figure as an SVG document; `None` if there is nothing to show.
    pub fn draw(&self) -> Option<String> {
        if self.panels.iter().any(|panel| panel.bars.is_empty()) || self.panels.is_empty() {
            return None;
        }
        let rows: Vec<i32> = self.panels.chunks(COLUMNS).map(height).collect();
        let note = NOTE_HEIGHT * self.note.lines().count() as u32 + BELOW_NOTE;
        let height = TITLE_HEIGHT + rows.iter().sum::<i32>() as u32 + note;
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        // Drawing into memory cannot fail; if it does, the figure is left out.
        let drawn = self.draw_on(&area, &rows);
        drop(area);
        drawn.is_ok().then(|| with_data(&text, self))?
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, rows: &[i32]) -> DrawResult {
        let area = begin(area, &self.title, &self.note)?;
        let width = WIDTH as i32 / COLUMNS as i32;
        let mut top = 0;
        for (row, panels) in self.panels.chunks(COLUMNS).enumerate() {
            for (column, panel) in panels.iter().enumerate() {
                panel.draw_at(&area, (column as i32 * width, top), width, &self.own)?;
            }
            top += rows[row];
        }
        Ok(())
    }
}

/// The height of panels side by side.
fn height(panels: &[Panel]) -> i32 {
    let bars = panels.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
    ABOVE + bars as i32 * BAR_STEP + BELOW
}

impl Panel {
    fn draw_at(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        (left, top): (i32, i32),
        width: i32,
        own: &str,
    ) -> DrawResult {
        let most = self.bars.iter().map(|bar| bar.range.map_or(bar.value, |(_, most)| most)).fold(0.0, f64::max);
        let room = width - NAMES_WIDTH - VALUE_WIDTH;
        let (zero, first) = (left + NAMES_WIDTH, top + ABOVE);
        let end = first + self.bars.len() as i32 * BAR_STEP;
        let at = |value: f64| zero + (value / most * f64::from(room)).round() as i32;
        let text = |words: &str, place, size: i32, across, bold: bool| {
            let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
            let font = TextStyle::from((FONT, size).into_font().style(style)).pos(Pos::new(across, VPos::Center));
            area.draw(&Text::new(words.to_owned(), place, font))
        };
        text(&self.title, (zero + room / 2, top + 18), 16, HPos::Center, false)?;
        for tick in ticks(most) {
            area.draw(&PathElement::new([(at(tick), first), (at(tick), end)], BLACK.mix(0.12)))?;
            text(&number(tick), (at(tick), end + 12), 14, HPos::Center, false)?;
        }
        text(&self.values, (zero + room / 2, end + 30), 15, HPos::Center, false)?;
        for (row, bar) in self.bars.iter().enumerate() {
            let upper = first + 2 + row as i32 * BAR_STEP;
            let middle = upper + BAR_HEIGHT / 2;
            let colour = if bar.name == own { OWN } else { OTHERS };
            let corners = [(zero, upper), (at(bar.value), upper + BAR_HEIGHT)];
            area.draw(&Rectangle::new(corners, colour.mix(0.85).filled()))?;
            text(&bar.name, (zero - 6, middle), 15, HPos::Right, bar.name == own)?;
            let (least, most) = bar.range.unwrap_or((bar.value, bar.value));
            if bar.range.is_some() {
                area.draw(&PathElement::new([(at(least), middle), (at(most), middle)], BLACK))?;
                for end in [at(least), at(most)] {
                    area.draw(&PathElement::new([(end, middle - 4), (end, middle + 4)], BLACK))?;
                }
            }
            text(&three_digits(bar.value), (at(most) + 6, middle), 14, HPos::Left, false)?;
        }
        area.draw(&PathElement::new([(zero, first), (zero, end)], BLACK))?;
        Ok(())
    }
}

/// Three significant digits without final zeros, or all digits before the point.
fn three_digits(value: f64) -> String {
    let text = match value {
        100.0.. => return number(value.round()),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Three to six round values from 0 on, the last one not above `most`.
fn ticks(most: f64) -> Vec<f64> {
    let decade = 10f64.powf(most.log10().floor());
    let steps = [0.2, 0.5, 1.0, 2.0].map(|step| step * decade);
    let step = steps.into_iter().find(|step| most / step < 6.0).unwrap_or(decade);
    (0..).map(|count| f64::from(count) * step).take_while(|tick| *tick <= most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_few_and_round() {
        assert_eq!(ticks(62.4), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(ticks(143.0), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(1510.0), [0.0, 500.0, 1000.0, 1500.0]);
        assert_eq!(ticks(2.0), [0.0, 0.5, 1.0, 1.5, 2.0]);
    }

    #[test]
    fn values_have_three_digits() {
        assert_eq!(
            [0.0, 0.462, 1.7, 30.0, 62.42, 1510.0].map(three_digits),
            ["0", "0.462", "1.7", "30", "62.4", "1,510"]
        );
    }

    #[test]
    fn values_and_ranges_are_drawn() {
        let figure = |range| {
            let bars = vec![Bar { name: "wireup".into(), value: 4.57, range }];
            let panels = vec![Panel { title: "4 x true".into(), values: "wall time [ms]".into(), bars }];
            Bars { title: "t".into(), own: "wireup".into(), panels, note: "a note".into() }.draw().unwrap()
        };
        let (without, bar) = (figure(None), figure(Some((3.67, 8.22))));
        assert!(bar.matches("<polyline").count() == without.matches("<polyline").count() + 3, "{bar}");
        for wanted in ["wireup", "4.57", "4 x true", "wall time [ms]", "a note"] {
            assert!(without.contains(wanted), "{without}");
        }
        let panels = Vec::new();
        assert_eq!(Bars { title: "t".into(), own: "wireup".into(), panels, note: String::new() }.draw(), None);
    }
}
