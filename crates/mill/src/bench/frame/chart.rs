//! A figure as a chart: lines over a logarithmic axis, or bars if there is one x only.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::outcome::{Figure, number};

const SIZE: (u32, u32) = (860, 460);
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

/// Writes it as SVG.
pub fn draw(path: &Path, figure: &Figure) -> Result<(), String> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    let drawn = match figure.xs().len() {
        0 => return Ok(()),
        1 => bars(&root, figure),
        _ => lines(&root, figure),
    };
    drawn.map_err(|error| format!("{}: {error}", path.display()))
}

/// The largest value with room above it, and the least.
fn range(figure: &Figure) -> (f64, f64) {
    let points = figure.series.iter().flat_map(|series| &series.points);
    let (mut least, mut largest) = (f64::INFINITY, 0.0f64);
    for point in points.filter(|point| point.y.median > 0.0) {
        least = least.min(point.y.min.max(point.y.median / 100.0));
        largest = largest.max(point.y.max);
    }
    if least.is_infinite() {
        return (0.1, 1.0);
    }
    (least, largest)
}

fn lines<B: DrawingBackend>(root: &DrawingArea<B, Shift>, figure: &Figure) -> Drawn
where
    B::ErrorType: 'static,
{
    root.fill(&WHITE)?;
    let xs = figure.xs();
    let (least, largest) = range(figure);
    let x_range = (xs[0].max(0.5) * 0.85..xs[xs.len() - 1] * 1.15).log_scale();
    let y_range = (least * 0.7..largest * 1.5).log_scale();
    let mut chart = ChartBuilder::on(root)
        .caption(&figure.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(x_range, y_range)?;
    chart
        .configure_mesh()
        .x_desc(&figure.x)
        .y_desc(&figure.y)
        .x_label_formatter(&|x| number(*x))
        .y_label_formatter(&|y| number(*y))
        .light_line_style(WHITE)
        .draw()?;
    for (index, series) in figure.series.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let points: Vec<_> = series
            .points
            .iter()
            .filter(|point| point.y.median > 0.0)
            .collect();
        let line = points
            .iter()
            .map(|point| (point.x.max(0.5), point.y.median));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(3))?
            .label(&series.system)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2)));
        let spreads = points.iter().map(|point| {
            let ends = [
                (point.x.max(0.5), point.y.min.max(least)),
                (point.x.max(0.5), point.y.max),
            ];
            PathElement::new(ends, color)
        });
        chart.draw_series(spreads)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

fn bars<B: DrawingBackend>(root: &DrawingArea<B, Shift>, figure: &Figure) -> Drawn
where
    B::ErrorType: 'static,
{
    root.fill(&WHITE)?;
    let (_, largest) = range(figure);
    let count = figure.series.len().min(COLORS.len());
    let mut chart = ChartBuilder::on(root)
        .caption(&figure.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(10)
        .y_label_area_size(76)
        .build_cartesian_2d(0.0..count as f64 + 0.1, 0.0..largest * 1.4)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc(&figure.y)
        .y_label_formatter(&|y| number(*y))
        .light_line_style(WHITE)
        .draw()?;
    // A longer list is the table's.
    for (index, series) in figure.series.iter().take(count).enumerate() {
        let color = COLORS[index % COLORS.len()];
        let Some(point) = series.points.first() else {
            continue;
        };
        let left = index as f64 + 0.1;
        let corners = [(left, 0.0), (left + 0.8, point.y.median)];
        let label = format!("{}: {}", series.system, number(point.y.median));
        chart
            .draw_series([Rectangle::new(corners, color.filled())])?
            .label(label)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
        let ends = [(left + 0.4, point.y.min), (left + 0.4, point.y.max)];
        chart.draw_series([PathElement::new(ends, BLACK)])?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
