//! Tests of the statistics and the table.

use super::*;

fn measured(mbit_per_second: [Vec<f64>; 3]) -> Measured {
    let cell = Cell {
        loss: "1%".to_owned(),
        delay: "10ms".to_owned(),
        reorder: "0".to_owned(),
    };
    Measured {
        cell,
        seconds: 5.0,
        mbit_per_second,
    }
}

#[test]
fn medians_are_compared() {
    let measured = measured([vec![10.0, 30.0, 20.0], vec![40.0, 1.0], vec![]]);
    assert_eq!(measured.median(Pair::KernelToKernel), 20.0);
    assert_eq!(measured.ratio(Pair::OursToKernel), Some(20.5 / 20.0));
    assert_eq!(
        table::row(&measured),
        "| 1% | 10ms | 0 | 20.00 (15.00–25.00) | 20.50 (1.00–40.00) | 1.02 | 0.000 (0.000–0.000) | 0.00 |"
    );
}

#[test]
fn kernel_that_carried_nothing_gives_no_ratio() {
    let measured = measured([vec![0.0], vec![1.0], vec![1.0]]);
    assert_eq!(measured.ratio(Pair::OursToKernel), None);
}
