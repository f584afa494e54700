//! Statistics that are robust against single bad rounds: medians, the median absolute deviation (MAD), outliers.
//!
//! A mean and a standard deviation would be changed by a single disturbed round; the median and the MAD do not change
//! much until half of the rounds are disturbed (B. Iglewicz, D. Hoaglin, How to Detect and Handle Outliers, 1993).
use serde::Serialize;

/// A value further from the median than this many robust standard deviations is reported as an outlier (chosen: the
/// rule of hyperfine).
const OUTLIER_DEVIATIONS: f64 = 10.0;
/// This factor times the MAD estimates the standard deviation of normally distributed values.
const MAD_TO_DEVIATION: f64 = 1.4826;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub count: usize,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Median of the distances from the median.
    pub mad: f64,
    pub outliers: usize,
}

/// `None` without values. The values must be finite.
pub fn summarize(values: &[f64]) -> Option<Summary> {
    let median = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - median).abs()).collect();
    let mad = self::median(&distances)?;
    // If more than half of the values are equal, the MAD is 0 and any other value would be an outlier; differences from
    // the rounding of the clock must not count.
    let bound = (OUTLIER_DEVIATIONS * MAD_TO_DEVIATION * mad).max(median.abs() * 1e-6);
    Some(Summary {
        count: values.len(),
        median,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        mad,
        outliers: distances.iter().filter(|d| **d > bound).count(),
    })
}

/// The mean of the two middle values for an even count.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_handles_odd_even_and_empty_lists() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn one_bad_round_is_an_outlier_and_keeps_median_and_mad() {
        let good = summarize(&[0.40, 0.41, 0.42, 0.43, 0.44]).unwrap();
        let bad = summarize(&[0.40, 0.41, 0.42, 0.43, 9.0]).unwrap();
        assert_eq!((good.median, good.outliers), (bad.median, 0));
        assert!((bad.mad - 0.01).abs() < 1e-9);
        assert_eq!((bad.outliers, bad.max, bad.min), (1, 9.0, 0.40));
    }

    #[test]
    fn equal_values_have_no_outliers_until_one_differs() {
        assert_eq!(summarize(&[1.0; 8]).unwrap().outliers, 0);
        assert_eq!(summarize(&[1.0, 1.0, 1.0, 1.0, 2.0]).unwrap().outliers, 1);
        assert_eq!(summarize(&[5.0]).unwrap().outliers, 0);
    }
}
