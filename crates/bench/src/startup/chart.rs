//! An SVG chart of lines over a size.
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, LogCoord};
use plotters::coord::ranged1d::Ranged;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

/// Width and height in pixels; the file is scalable.
const SIZE: (u32, u32) = (980, 560);
/// The part of the width that the legend takes at the right.
const LEGEND_WIDTH: u32 = 210;
/// Distinguishable also with red-green blindness (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 94, 240),
    RGBColor(90, 90, 90),
];
const FONT: &str = "sans-serif";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Measured here: points joined by a line.
    Measured,
    /// Computed from measurements: hollow points.
    Extrapolated,
    /// From the source: crosses, for its second scheme triangles; no line between them.
    Published { is_first: bool },
    /// From a formula of the source: a thin line.
    Model,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub name: String,
    pub style: Style,
    /// Size and value; in a logarithmic chart all are positive.
    pub points: Vec<(f64, f64)>,
}

/// The axis of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Axis {
    Log,
    /// From 0 to this value.
    Linear(f64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The name of its file.
    pub name: &'static str,
    pub title: String,
    /// The meaning of the sizes.
    pub across: &'static str,
    /// The meaning of the values, with their unit.
    pub values: &'static str,
    pub axis: Axis,
    pub lines: Vec<Line>,
    /// A note below the chart: the source of published points.
    pub note: String,
}

type DrawResult = Result<(), Box<dyn std::error::Error>>;

impl Chart {
    /// The chart as an SVG document; `None` if there is nothing to show.
    pub fn draw(&self) -> Option<String> {
        let all = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let sizes = range(all().map(|point| point.0))?;
        let values = range(all().map(|point| point.1))?;
        let mut text = String::new();
        let drawn = self.draw_on(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area(), sizes, values);
        // Drawing into memory cannot fail; if it does, the chart is left out.
        drawn.is_ok().then_some(text)
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, sizes: Range<f64>, values: Range<f64>) -> DrawResult {
        area.fill(&WHITE)?;
        let (area, note) = area.split_vertically(SIZE.1 - 26);
        note.draw(&Text::new(self.note.clone(), (12, 2), (FONT, 13).into_font().color(&BLACK.mix(0.7))))?;
        let sizes = sizes.start / 1.3..sizes.end * 1.3;
        let octaves = ((sizes.end / sizes.start).log2().ceil() as usize).max(2);
        let sizes = sizes.log_scale().base(2.0);
        let (area, legend) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        self.draw_legend(&legend)?;
        let mut builder = ChartBuilder::on(&area);
        builder
            .caption(&self.title, (FONT, 19))
            .margin(12)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(84);
        match self.axis {
            Axis::Log => {
                let ticks = log_ticks(&values);
                let values = (ticks[0]..values.end * 1.5).log_scale().with_key_points(ticks);
                self.fill(builder.build_cartesian_2d(sizes, values)?, octaves)
            }
            Axis::Linear(most) => {
                self.fill(builder.build_cartesian_2d(sizes, 0.0..most.max(values.end * 1.05))?, octaves)
            }
        }
    }

    fn fill<'a, 'b: 'a, Y>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, Y>>,
        octaves: usize,
    ) -> DrawResult
    where
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc(self.across)
            .y_desc(self.values)
            .axis_desc_style((FONT, 15))
            .label_style((FONT, 13))
            .x_labels(octaves)
            .light_line_style(WHITE)
            .bold_line_style(BLACK.mix(0.12))
            .x_label_formatter(&|size| format!("{size:.0}"))
            .y_label_formatter(&|value| number(*value))
            .draw()?;
        for (line, colour) in self.shown() {
            let points = line.points.iter().copied();
            match line.style {
                Style::Measured => {
                    chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
                    chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
                }
                Style::Extrapolated => {
                    chart.draw_series(points.map(|point| Circle::new(point, 4, colour.stroke_width(1))))?;
                }
                Style::Published { is_first: true } => {
                    chart.draw_series(points.map(|point| Cross::new(point, 5, BLACK.stroke_width(2))))?;
                }
                Style::Published { is_first: false } => {
                    chart.draw_series(points.map(|point| TriangleMarker::new(point, 6, BLACK.filled())))?;
                }
                Style::Model => {
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(1)))?;
                }
            }
        }
        Ok(())
    }

    /// The lines' names, beside the chart, where they cover nothing.
    fn draw_legend(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> DrawResult {
        for (row, (line, colour)) in self.shown().enumerate() {
            let y = 60 + 22 * row as i32;
            match line.style {
                Style::Measured => {
                    area.draw(&PathElement::new([(2, y), (22, y)], colour.stroke_width(2)))?;
                    area.draw(&Circle::new((12, y), 3, colour.filled()))?;
                }
                Style::Extrapolated => area.draw(&Circle::new((12, y), 4, colour.stroke_width(1)))?,
                Style::Published { is_first: true } => area.draw(&Cross::new((12, y), 5, BLACK.stroke_width(2)))?,
                Style::Model => area.draw(&PathElement::new([(2, y), (22, y)], colour.stroke_width(1)))?,
                Style::Published { is_first: false } => {
                    area.draw(&TriangleMarker::new((12, y), 6, BLACK.filled()))?;
                }
            }
            area.draw(&Text::new(line.name.clone(), (30, y - 7), (FONT, 13).into_font()))?;
        }
        Ok(())
    }

    /// The lines that have points, each with its colour.
    fn shown(&self) -> impl Iterator<Item = (&Line, RGBColor)> {
        let lines = self.lines.iter().filter(|line| !line.points.is_empty());
        lines.zip(COLOURS.into_iter().cycle())
    }
}

/// The ticks of a logarithmic axis, beginning with the last one below all values: powers of ten, and if these are few also 2 and 5 times
/// these.
fn log_ticks(values: &Range<f64>) -> Vec<f64> {
    let (first, last) = (values.start.log10().floor() as i32, (values.end * 1.5).log10().floor() as i32);
    let steps: &[f64] = if last - first < 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut ticks: Vec<f64> = Vec::new();
    for tick in (first..=last).flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))) {
        // Only one tick below the values is needed.
        if tick <= values.start {
            ticks.clear();
        }
        if tick <= values.end * 1.5 {
            ticks.push(tick);
        }
    }
    ticks
}

/// Smallest and largest value; `None` if there are none.
fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    values.fold(None, |range: Option<Range<f64>>, value| {
        Some(range.map_or(value..value, |range| range.start.min(value)..range.end.max(value)))
    })
}

/// The shortest text for a number.
fn number(value: f64) -> String {
    if value > 0.0 && value < 1e-3 {
        return format!("{value:.0e}");
    }
    let digits = if value >= 1.0 { 1e1 } else { 1e4 };
    format!("{}", (value * digits).round() / digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_a_short_logarithmic_axis_has_ticks() {
        assert_eq!(log_ticks(&(0.238..0.396)), [0.2, 0.5]);
        assert_eq!(log_ticks(&(1.0..1.0)), [1.0]);
        assert_eq!(log_ticks(&(0.9..24.4)), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(log_ticks(&(3.0..3000.0)), [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn every_tick_is_labelled() {
        let line = Line { name: "a".into(), style: Style::Measured, points: vec![(1.0, 0.238), (8.0, 0.396)] };
        let (axis, title) = (Axis::Log, "t".to_owned());
        let chart =
            Chart { name: "c", title, across: "ranks", values: "s", axis, lines: vec![line], note: String::new() };
        let text = chart.draw().unwrap();
        assert!(text.contains("\n0.2\n") && text.contains("\n0.5\n"), "{text}");
    }
}
