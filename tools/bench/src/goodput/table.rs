//! The results as a Markdown table: medians, the range that holds half of the seeds, ratios of the
//! medians.

use super::{Measured, Pair};

/// The table, in Mbit/s.
pub fn table(found: &[Measured]) -> String {
    let mut text = String::from(
        "| loss | delay | reordered | kernel to kernel | Millstream to kernel | ratio | kernel to Millstream | ratio |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for measured in found {
        text.push_str(&row(measured));
        text.push('\n');
    }
    text
}

/// One row of the table.
pub fn row(measured: &Measured) -> String {
    let cell = &measured.cell;
    let rate = |pair| {
        let (low, high) = measured.quartiles(pair);
        let [median, low, high] = [measured.median(pair), low, high].map(shown);
        format!("{median} ({low}–{high})")
    };
    let ratio = |pair| {
        measured
            .ratio(pair)
            .map_or("–".to_owned(), |ratio| format!("{ratio:.2}"))
    };
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |",
        cell.loss,
        cell.delay,
        cell.reorder,
        rate(Pair::KernelToKernel),
        rate(Pair::OursToKernel),
        ratio(Pair::OursToKernel),
        rate(Pair::KernelToOurs),
        ratio(Pair::KernelToOurs),
    )
}

/// Megabits per second, with more digits below 1.
fn shown(rate: f64) -> String {
    let digits = if rate < 1.0 { 3 } else { 2 };
    format!("{rate:.digits$}")
}
