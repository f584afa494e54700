//! An SVG chart of lines over a size. Each line is named at its end; the range of the values is an error bar.
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::{Deserialize, Serialize};

use crate::figure::with_data;
use crate::stats;

/// Width and height in pixels; the file is scalable.
const SIZE: (u32, u32) = (980, 560);
/// The part of the width that the names of the lines take at the right.
const NAMES_WIDTH: u32 = 230;
/// The height of a name.
const NAME_HEIGHT: i32 = 18;
/// The height of the title.
pub const TITLE_HEIGHT: u32 = 36;
/// The room below the note.
pub const BELOW_NOTE: u32 = 8;
/// The height of a line of the note.
pub const NOTE_HEIGHT: u32 = 18;
/// With more sizes than this the axis has powers of two instead of the sizes.
const SIZES_MAX: usize = 12;
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
pub const FONT: &str = "sans-serif";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub size: f64,
    pub value: f64,
    /// The smallest and the largest value; `None` if they were not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
}

impl Point {
    /// The median of the values, in a unit of which `per_unit` are one of theirs.
    pub fn of(size: u32, summary: &stats::Summary, per_unit: f64) -> Point {
        let range = (summary.count > 1).then_some((summary.min * per_unit, summary.max * per_unit));
        Point { size: size.into(), value: summary.median * per_unit, range }
    }
}

/// In a logarithmic chart all sizes and values are positive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Points(pub Vec<Point>);

impl FromIterator<Point> for Points {
    fn from_iter<I: IntoIterator<Item = Point>>(points: I) -> Self {
        Points(points.into_iter().collect())
    }
}

/// Sizes and values without a range.
impl FromIterator<(f64, f64)> for Points {
    fn from_iter<I: IntoIterator<Item = (f64, f64)>>(points: I) -> Self {
        points.into_iter().map(|(size, value)| Point { size, value, range: None }).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub style: Style,
    pub points: Points,
}

/// The axis of the values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Axis {
    Log,
    /// From 0 to at least this value.
    Linear(f64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// The name of its file.
    pub name: &'static str,
    /// What is shown, and whether lower or higher values are better.
    pub title: String,
    /// The meaning of the sizes.
    pub across: &'static str,
    /// The meaning of the values, with their unit.
    pub values: &'static str,
    pub axis: Axis,
    pub lines: Vec<Line>,
    /// Lines below the chart: machine, date, source of published points.
    pub note: String,
}

pub type DrawResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

impl Chart {
    /// The chart as an SVG document with its data; `None` if there is nothing to show.
    pub fn draw(&self) -> Option<String> {
        let all = || self.lines.iter().flat_map(|line| &line.points.0);
        let sizes = range(all().map(|point| point.size))?;
        let ends = |point: &Point| point.range.map_or([point.value; 2], |(least, most)| [least, most]);
        let values = range(all().flat_map(|point| ends(point).into_iter().chain([point.value])))?;
        let mut text = String::new();
        let drawn = self.draw_on(&SVGBackend::with_string(&mut text, SIZE).into_drawing_area(), sizes, values);
        // Drawing into memory cannot fail; if it does, the chart is left out.
        drawn.is_ok().then(|| with_data(&text, self))?
    }

    fn draw_on(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, sizes: Range<f64>, values: Range<f64>) -> DrawResult {
        let area = begin(area, &self.title, &self.note)?;
        let ticks = self.size_ticks(&sizes);
        let sizes = (sizes.start / 1.2..sizes.end * 1.2).log_scale().base(2.0).with_key_points(ticks);
        let mut builder = ChartBuilder::on(&area);
        builder.margin(12).margin_right(NAMES_WIDTH).x_label_area_size(44).y_label_area_size(84);
        match self.axis {
            Axis::Log => {
                let axis = log_range(&values);
                let ticks = log_ticks(&axis);
                let values = axis.log_scale().with_key_points(ticks);
                self.fill(&area, builder.build_cartesian_2d(sizes, values)?)
            }
            Axis::Linear(most) => {
                self.fill(&area, builder.build_cartesian_2d(sizes, 0.0..most.max(values.end * 1.05))?)
            }
        }
    }

    /// The sizes in the chart; if these are many, powers of two.
    fn size_ticks(&self, sizes: &Range<f64>) -> Vec<f64> {
        let mut ticks: Vec<f64> = self.lines.iter().flat_map(|line| &line.points.0).map(|point| point.size).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        if ticks.len() > SIZES_MAX {
            let powers = sizes.start.log2().ceil() as i32..=sizes.end.log2().floor() as i32;
            ticks = powers.map(|power| 2f64.powi(power)).collect();
        }
        ticks
    }

    fn fill<'a, 'b: 'a, X, Y>(
        &self,
        area: &DrawingArea<SVGBackend<'b>, Shift>,
        mut chart: ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
    ) -> DrawResult
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let is_log = if self.axis == Axis::Log { ", logarithmic" } else { "" };
        chart
            .configure_mesh()
            .x_desc(format!("{}, logarithmic", self.across))
            .y_desc(format!("{}{is_log}", self.values))
            .axis_desc_style((FONT, 17))
            .label_style((FONT, 15))
            .light_line_style(WHITE)
            .bold_line_style(BLACK.mix(0.12))
            .x_label_formatter(&|size| number(*size))
            .y_label_formatter(&|value| number(*value))
            .draw()?;
        for (line, colour) in self.shown() {
            let points = || line.points.0.iter().map(|point| (point.size, point.value));
            for bar in line.points.0.iter().filter_map(|point| Some((point.size, point.range?))) {
                let (size, (least, most)) = bar;
                chart.draw_series(LineSeries::new([(size, least), (size, most)], colour.stroke_width(1)))?;
                let cap = |end| EmptyElement::at(end) + PathElement::new([(-4, 0), (4, 0)], colour.stroke_width(1));
                chart.draw_series([cap((size, least)), cap((size, most))])?;
            }
            match line.style {
                Style::Measured => {
                    chart.draw_series(LineSeries::new(points(), colour.stroke_width(2)))?;
                    chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
                }
                Style::Extrapolated => {
                    chart.draw_series(points().map(|point| Circle::new(point, 4, colour.stroke_width(1))))?;
                }
                Style::Published { is_first: true } => {
                    chart.draw_series(points().map(|point| Cross::new(point, 5, BLACK.stroke_width(2))))?;
                }
                Style::Published { is_first: false } => {
                    chart.draw_series(points().map(|point| TriangleMarker::new(point, 6, BLACK.filled())))?;
                }
                Style::Model => {
                    chart.draw_series(LineSeries::new(points(), colour.stroke_width(1)))?;
                }
            }
        }
        let names = self.shown().filter_map(|(line, colour)| {
            let end = line.points.0.iter().max_by(|one, other| one.size.total_cmp(&other.size))?;
            let colour = if matches!(line.style, Style::Published { .. }) { BLACK } else { colour };
            let top = chart.backend_coord(&(end.size, end.range.map_or(end.value, |(_, most)| most))).1;
            Some(Name { text: &line.name, end: chart.backend_coord(&(end.size, end.value)), top, colour })
        });
        let (across, down) = chart.plotting_area().get_pixel_range();
        draw_names(area, names.collect(), (across.end, down))
    }

    /// The lines that have points, each with its colour.
    fn shown(&self) -> impl Iterator<Item = (&Line, RGBColor)> {
        let lines = self.lines.iter().filter(|line| !line.points.0.is_empty());
        lines.zip(COLOURS.into_iter().cycle())
    }
}

/// Draws title and note; returns the area between them.
pub fn begin<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    title: &str,
    note: &str,
) -> DrawResult<DrawingArea<SVGBackend<'a>, Shift>> {
    area.fill(&WHITE)?;
    let (width, height) = area.dim_in_pixel();
    let lines = note.lines().count() as u32;
    let (upper, lower) = area.split_vertically(height - NOTE_HEIGHT * lines - BELOW_NOTE);
    for (at, line) in note.lines().enumerate() {
        let y = at as i32 * NOTE_HEIGHT as i32;
        lower.draw(&Text::new(line.to_owned(), (12, y), (FONT, 14).into_font().color(&BLACK.mix(0.7))))?;
    }
    let centred = TextStyle::from((FONT, 22)).pos(Pos::new(HPos::Center, VPos::Top));
    upper.draw(&Text::new(title.to_owned(), (width as i32 / 2, 10), centred))?;
    Ok(upper.margin(TITLE_HEIGHT, 0, 0, 0))
}

/// The name of a line, the pixel at which the line ends, and the upper end of the error bar there.
struct Name<'a> {
    text: &'a str,
    end: (i32, i32),
    top: i32,
    colour: RGBColor,
}

/// Names lines beside their ends: right of the plot if the line goes that far, else above its end.
fn draw_names(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    names: Vec<Name<'_>>,
    (right, down): (i32, Range<i32>),
) -> DrawResult {
    let origin = area.get_base_pixel();
    let local = |(x, y): (i32, i32)| (x - origin.0, y - origin.1);
    let last = names.iter().map(|name| name.end.0).max().unwrap_or(right);
    let (mut beside, above): (Vec<Name<'_>>, Vec<Name<'_>>) = names.into_iter().partition(|name| name.end.0 == last);
    for Name { text, end, top, colour } in above {
        area.draw(&Text::new(text.to_owned(), local((end.0, top - 14)), style(&colour, HPos::Center)))?;
    }
    beside.sort_by_key(|name| name.end.1);
    let wanted: Vec<i32> = beside.iter().map(|name| name.end.1).collect();
    for (Name { text, end, colour, .. }, y) in beside.into_iter().zip(apart(&wanted, down)) {
        area.draw(&PathElement::new([local((end.0 + 8, end.1)), local((right + 14, y))], colour.mix(0.5)))?;
        area.draw(&Text::new(text.to_owned(), local((right + 18, y)), style(&colour, HPos::Left)))?;
    }
    Ok(())
}

fn style(colour: &RGBColor, across: HPos) -> TextStyle<'_> {
    TextStyle::from((FONT, 15)).color(colour).pos(Pos::new(across, VPos::Center))
}

/// Moves ascending positions as far apart as names are high, and keeps them within the range if it is high enough.
fn apart(wanted: &[i32], within: Range<i32>) -> Vec<i32> {
    let mut places: Vec<i32> = Vec::new();
    for y in wanted {
        places.push(places.last().map_or(*y, |above| (*y).max(above + NAME_HEIGHT)));
    }
    let mut below = within.end;
    for place in places.iter_mut().rev() {
        *place = (*place).min(below);
        below = *place - NAME_HEIGHT;
    }
    places
}

/// The range of a logarithmic axis around all values, wide enough for at least one tick.
fn log_range(values: &Range<f64>) -> Range<f64> {
    values.start / 1.6..values.end * 1.6
}

/// The ticks of a logarithmic axis: powers of ten, and if these are few also 2 and 5 times these.
fn log_ticks(axis: &Range<f64>) -> Vec<f64> {
    let decades = axis.start.log10().floor() as i32..=axis.end.log10().floor() as i32;
    let steps: &[f64] = if axis.end / axis.start < 1e3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    ticks.filter(|tick| axis.contains(tick)).collect()
}

/// Smallest and largest value; `None` if there are none.
fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    values.fold(None, |range: Option<Range<f64>>, value| {
        Some(range.map_or(value..value, |range| range.start.min(value)..range.end.max(value)))
    })
}

/// The shortest text for a number, thousands apart.
pub fn number(value: f64) -> String {
    if value > 0.0 && value < 1e-3 {
        return format!("{value:.0e}");
    }
    let digits = if value >= 1.0 { 1e1 } else { 1e4 };
    let text = ((value * digits).round() / digits).to_string();
    match text.split_once('.') {
        None if text.len() > 3 => format!("{},{}", number(value.div_euclid(1e3)), &text[text.len() - 3..]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_a_short_logarithmic_axis_has_ticks() {
        let ticks = |values| log_ticks(&log_range(&values));
        assert_eq!(ticks(0.238..0.396), [0.2, 0.5]);
        assert_eq!(ticks(3.1..3.1), [2.0]);
        assert_eq!(ticks(0.9..24.4), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(ticks(3.0..3000.0), [10.0, 100.0, 1000.0]);
    }

    #[test]
    fn every_tick_is_labelled() {
        let points = [(1.0, 0.238), (8.0, 0.396)].into_iter().collect();
        let line = Line { name: "a".into(), style: Style::Measured, points };
        let (axis, title) = (Axis::Log, "t".to_owned());
        let chart =
            Chart { name: "c", title, across: "ranks", values: "s", axis, lines: vec![line], note: String::new() };
        let text = chart.draw().unwrap();
        assert!(text.contains("\n0.2\n") && text.contains("\n0.5\n"), "{text}");
    }

    #[test]
    fn thousands_are_separated_by_commas() {
        let texts = [0.5, 7.0, 999.0, 1_000.0, 16_384.0, 1_234_567.0].map(number);
        assert_eq!(texts, ["0.5", "7", "999", "1,000", "16,384", "1,234,567"]);
    }

    #[test]
    fn labels_do_not_overlap_and_stay_inside() {
        assert_eq!(apart(&[10, 12, 100], 0..200), [10, 28, 100]);
        assert_eq!(apart(&[190, 195, 198], 0..200), [164, 182, 200]);
    }

    #[test]
    fn a_recorded_range_is_drawn() {
        let with = |range| {
            let points = Points(vec![Point { size: 4.0, value: 2.0, range }]);
            let lines = vec![Line { name: "a line".into(), style: Style::Measured, points }];
            let (title, note) = ("t".to_owned(), String::new());
            let chart = Chart { name: "c", title, across: "ranks", values: "s", axis: Axis::Linear(1.0), lines, note };
            chart.draw().unwrap()
        };
        let (without, bar) = (with(None), with(Some((1.0, 4.0))));
        assert!(bar.matches("<polyline").count() > without.matches("<polyline").count(), "{bar}");
        assert!(without.contains("a line"), "{without}");
    }
}
