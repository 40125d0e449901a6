//! A figure as a chart: lines, or bars if there is only one x. It shows medians, with a stroke from
//! the least to the largest value. Two rings mark runs that fall into two groups. The systems are
//! named below. An axis that does not begin at zero says so.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::outcome::{Figure, Point, Series, number};

/// Width and height of the chart in pixels, without the legend.
const SIZE: (u32, u32) = (860, 420);
/// Height of a line of the legend in pixels; each system has one.
const LEGEND_LINE: u32 = 18;
/// Ratio of the largest value to the least above which the axis is logarithmic. On a linear axis
/// nobody could read the small values.
const LINEAR_MAX: f64 = 25.0;
const COLORS: [RGBColor; 9] = [
    RGBColor(90, 90, 90),
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(23, 190, 207),
];

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Writes the figure as an SVG file.
pub fn draw(path: &Path, figure: &Figure) -> Result<(), String> {
    let shown = figure
        .series
        .iter()
        .filter(|series| !series.points.is_empty());
    let legend = shown.clone().count().min(COLORS.len()) as u32 * LEGEND_LINE + 8;
    let root = SVGBackend::new(path, (SIZE.0, SIZE.1 + legend)).into_drawing_area();
    let shown: Vec<Shown> = shown.zip(COLORS).collect();
    let drawn = match figure.xs().len() {
        0 => return Ok(()),
        1 => bars(&root, figure, &shown),
        _ => lines(&root, figure, &shown),
    };
    drawn.map_err(|error| format!("{}: {error}", path.display()))
}

/// A system and its color. Systems beyond the last color are only in the table.
type Shown<'a> = (&'a Series, RGBColor);
type Area<B> = DrawingArea<B, Shift>;

/// The least median and the largest value.
fn range(shown: &[Shown]) -> (f64, f64) {
    let points = shown.iter().flat_map(|(series, _)| &series.points);
    let (mut least, mut largest) = (f64::INFINITY, 0.0f64);
    for point in points.filter(|point| point.y.median > 0.0) {
        least = least.min(point.y.median);
        largest = largest.max(point.y.max);
    }
    match least.is_finite() {
        true => (least, largest),
        false => (0.1, 1.0),
    }
}

/// Draws lines. All x stand at equal distances, since each is mostly the double of the one before.
fn lines<B: DrawingBackend>(root: &Area<B>, figure: &Figure, shown: &[Shown]) -> Drawn
where
    B::ErrorType: 'static,
{
    root.fill(&WHITE)?;
    let xs = figure.xs();
    let (least, largest) = range(shown);
    let (chart, legend) = root.split_vertically(SIZE.1);
    let x_range = -0.3..xs.len() as f64 - 0.7;
    let mut builder = ChartBuilder::on(&chart);
    builder
        .caption(&figure.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(76);
    if largest / least > LINEAR_MAX {
        let (from, to) = (least / 2.0, largest * 1.5);
        let mut chart = builder.build_cartesian_2d(x_range, (from..to).log_scale())?;
        let y = format!("{} (logarithmic)", figure.y);
        mesh(&mut chart, &xs, (&figure.x, &y))?;
        plot(&mut chart, &xs, shown, from)?;
    } else {
        let mut chart = builder.build_cartesian_2d(x_range, 0.0..largest * 1.1)?;
        mesh(&mut chart, &xs, (&figure.x, &figure.y))?;
        plot(&mut chart, &xs, shown, 0.0)?;
    }
    names(&legend, shown, |_| String::new())?;
    root.present()?;
    Ok(())
}

/// A chart whose x axis is the index of x.
type Plane<'a, B, Y> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, Y>>;

fn mesh<B: DrawingBackend, Y>(
    chart: &mut Plane<'_, B, Y>,
    xs: &[f64],
    (x, y): (&str, &str),
) -> Drawn
where
    B::ErrorType: 'static,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let at = |place: &f64| {
        let near = place.round();
        let x = xs
            .get(near as usize)
            .filter(|_| (place - near).abs() < 0.01);
        x.map_or(String::new(), |x| number(*x))
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * xs.len() + 1)
        .x_desc(x)
        .y_desc(y)
        .x_label_formatter(&at)
        .y_label_formatter(&|y| number(*y))
        .light_line_style(WHITE)
        .draw()?;
    Ok(())
}

fn plot<B: DrawingBackend, Y>(
    chart: &mut Plane<'_, B, Y>,
    xs: &[f64],
    shown: &[Shown],
    floor: f64,
) -> Drawn
where
    B::ErrorType: 'static,
    Y: Ranged<ValueType = f64>,
{
    let place = |x: f64| xs.iter().position(|other| *other == x).unwrap_or(0) as f64;
    for (series, color) in shown {
        let points = series.points.iter().filter(|point| point.y.median > 0.0);
        let medians = points.clone().map(|point| (place(point.x), point.y.median));
        chart.draw_series(LineSeries::new(medians, color.stroke_width(2)).point_size(3))?;
        let spreads = points.map(|point| {
            let x = place(point.x);
            let ends = [(x, point.y.min.max(floor)), (x, point.y.max)];
            PathElement::new(ends, color.stroke_width(1))
        });
        chart.draw_series(spreads)?;
        let groups = series.points.iter().flat_map(|point| {
            let medians = group_medians(point).into_iter();
            medians.map(|median| Circle::new((place(point.x), median), 5, *color))
        });
        chart.draw_series(groups)?;
    }
    Ok(())
}

/// Medians of the two groups that the runs fall into; each gets a ring.
fn group_medians(point: &Point) -> Vec<f64> {
    let levels = point.y.levels.iter();
    levels
        .flat_map(|levels| [levels.lower.median, levels.upper.median])
        .filter(|median| *median > 0.0)
        .collect()
}

/// Writes the legend, a line for each color.
fn names<B: DrawingBackend>(
    legend: &Area<B>,
    shown: &[Shown],
    more: impl Fn(&Series) -> String,
) -> Drawn
where
    B::ErrorType: 'static,
{
    for (index, (series, color)) in shown.iter().enumerate() {
        let y = (index as u32 * LEGEND_LINE) as i32;
        let corners = [(90, y + 2), (104, y + 12)];
        legend.draw(&Rectangle::new(corners, color.filled()))?;
        let text = format!("{}{}", series.system, more(series));
        legend.draw(&Text::new(text, (112, y), ("sans-serif", 13)))?;
    }
    Ok(())
}

fn bars<B: DrawingBackend>(root: &Area<B>, figure: &Figure, shown: &[Shown]) -> Drawn
where
    B::ErrorType: 'static,
{
    root.fill(&WHITE)?;
    let (_, largest) = range(shown);
    let (chart, legend) = root.split_vertically(SIZE.1);
    let mut chart = ChartBuilder::on(&chart)
        .caption(&figure.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(10)
        .y_label_area_size(76)
        .build_cartesian_2d(0.0..shown.len() as f64 + 0.1, 0.0..largest * 1.1)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc(&figure.y)
        .y_label_formatter(&|y| number(*y))
        .light_line_style(WHITE)
        .draw()?;
    for (index, (series, color)) in shown.iter().enumerate() {
        let Some(point) = series.points.first() else {
            continue;
        };
        let left = index as f64 + 0.1;
        let corners = [(left, 0.0), (left + 0.8, point.y.median)];
        chart.draw_series([Rectangle::new(corners, color.filled())])?;
        let ends = [(left + 0.4, point.y.min), (left + 0.4, point.y.max)];
        chart.draw_series([PathElement::new(ends, BLACK)])?;
        let groups = group_medians(point).into_iter();
        let groups = groups.map(|median| Circle::new((left + 0.4, median), 5, BLACK));
        chart.draw_series(groups)?;
    }
    names(&legend, shown, |series| {
        let median = series.points.first().map(|point| number(point.y.median));
        format!(": {}", median.unwrap_or_default())
    })?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::frame::Spread;

    use super::*;

    fn drawn(values: &[(f64, f64)]) -> String {
        let values: Vec<_> = values.iter().map(|&(x, y)| (x, vec![y])).collect();
        drawn_runs(&values)
    }

    fn drawn_runs(values: &[(f64, Vec<f64>)]) -> String {
        let points = values.iter().map(|(x, runs)| Point {
            x: *x,
            y: Spread::of(runs.iter().copied()),
        });
        let figure = Figure {
            id: "test".to_owned(),
            title: "Title".to_owned(),
            x: "segments".to_owned(),
            y: "cycles".to_owned(),
            falls: true,
            compares: true,
            series: vec![Series {
                system: "ours".to_owned(),
                points: points.collect(),
            }],
        };
        let runs = values.iter().map(|(_, runs)| runs.len()).sum::<usize>();
        let name = format!("mst-{}-{}-{runs}.svg", std::process::id(), values.len());
        let path = std::env::temp_dir().join(name);
        draw(&path, &figure).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        text
    }

    /// The texts of an SVG.
    fn texts(svg: &str) -> Vec<&str> {
        let parts = svg.split("<text").skip(1);
        let inside = parts.filter_map(|part| part.split_once('>')?.1.split_once("</text>"));
        inside.map(|(text, _)| text.trim()).collect()
    }

    #[test]
    fn axes_have_a_label_at_each_x_and_several_at_y() {
        let svg = drawn(&[(1.0, 0.37), (20.0, 0.33), (40.0, 0.35)]);
        let texts = texts(&svg);
        for wanted in ["1", "20", "40", "segments", "cycles", "ours"] {
            assert!(texts.contains(&wanted), "{wanted} is not in {texts:?}");
        }
        let heights = texts.iter().filter(|text| text.starts_with("0.")).count();
        assert!(heights >= 3, "{texts:?}");
    }

    #[test]
    fn values_far_apart_have_a_logarithmic_axis_that_says_so() {
        let svg = drawn(&[(1.0, 1.0), (2.0, 5_000.0)]);
        assert!(texts(&svg).contains(&"cycles (logarithmic)"), "{svg}");
    }

    #[test]
    fn two_groups_of_runs_have_a_ring_each() {
        let one = vec![870.0, 871.0, 872.0, 873.0, 874.0, 875.0];
        let two = vec![870.0, 871.0, 872.0, 1_200.0, 1_201.0, 1_202.0];
        let rings = |svg: &str| svg.matches("r=\"5\"").count();
        let svg = drawn_runs(&[(1.0, one.clone()), (2.0, two.clone())]);
        assert_eq!(rings(&svg), 2, "{svg}");
        assert_eq!(rings(&drawn_runs(&[(1.0, two)])), 2);
        assert_eq!(rings(&drawn_runs(&[(1.0, one)])), 0);
    }
}
