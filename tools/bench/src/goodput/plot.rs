//! The ratios as a plot: a group of two bars per cell, and the line that they are to reach.

use std::path::Path;

use plotters::prelude::*;

use super::{Measured, Pair};

/// Width of a cell, and height of the plot, in pixels.
const CELL_WIDTH: u32 = 44;
const HEIGHT: u32 = 480;
/// The ratio to the kernel that Millstream must reach.
const BAR: f64 = 0.95;

const SHOWN: [(Pair, &str, RGBColor); 2] = [
    (
        Pair::OursToKernel,
        "Millstream to kernel",
        RGBColor(31, 119, 180),
    ),
    (
        Pair::KernelToOurs,
        "kernel to Millstream",
        RGBColor(255, 127, 14),
    ),
];

/// Writes the plot as an SVG file.
pub fn plot(path: &Path, found: &[Measured]) -> Result<(), String> {
    draw(path, found).map_err(|error| format!("{}: {error}", path.display()))
}

fn draw(path: &Path, found: &[Measured]) -> Result<(), Box<dyn std::error::Error>> {
    let ratios = SHOWN.map(|(pair, _, _)| {
        let ratio = |measured: &Measured| measured.ratio(pair).unwrap_or(0.0);
        found.iter().map(ratio).collect::<Vec<f64>>()
    });
    let highest = ratios.iter().flatten().copied().fold(1.2, f64::max);
    let size = (120 + CELL_WIDTH * found.len() as u32, HEIGHT);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(
            "Goodput against kernel to kernel, median over the seeds",
            ("sans-serif", 18),
        )
        .margin(10)
        .x_label_area_size(90)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..found.len() as f64, 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc("ratio")
        .draw()?;
    for (shown, (_, name, color)) in SHOWN.into_iter().enumerate() {
        let bars = ratios[shown].iter().enumerate().map(|(index, ratio)| {
            let left = index as f64 + 0.12 + 0.4 * shown as f64;
            Rectangle::new([(left, 0.0), (left + 0.36, *ratio)], color.filled())
        });
        chart
            .draw_series(bars)?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    let line = [(0.0, BAR), (found.len() as f64, BAR)];
    chart
        .draw_series(LineSeries::new(line, &BLACK))?
        .label("0.95")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 12, y)], BLACK));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    label_cells(&root, found)?;
    root.present()?;
    Ok(())
}

/// Writes loss, delay and reordering of each group below it, from bottom to top.
fn label_cells<B: DrawingBackend>(
    root: &DrawingArea<B, plotters::coord::Shift>,
    found: &[Measured],
) -> Result<(), Box<dyn std::error::Error>>
where
    B::ErrorType: 'static,
{
    let style = ("sans-serif", 11)
        .into_font()
        .transform(FontTransform::Rotate270);
    for (index, measured) in found.iter().enumerate() {
        let cell = &measured.cell;
        let mut text = format!("{} {}", cell.loss, cell.delay);
        if cell.reorder != "0" {
            text.push_str(" reord.");
        }
        let x = 58 + CELL_WIDTH as i32 * index as i32 + CELL_WIDTH as i32 / 2;
        root.draw_text(
            &text,
            &style.clone().into_text_style(root),
            (x, HEIGHT as i32 - 14),
        )?;
    }
    Ok(())
}
