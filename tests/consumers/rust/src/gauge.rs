//! Readings of a tide gauge: two waves and their mean level.

/// Hours of one turn of the moon and of the sun.
pub const PERIODS: [f64; 2] = [12.4206, 12.0];

/// The values that the fit has to find: level, and sine and cosine of each wave.
pub const TRUTH: [f64; 5] = [1.75, 0.9, -0.4, 0.3, 0.2];

/// The waves at an hour, by which the parameters are multiplied.
pub fn features(hour: f64) -> [f64; 5] {
    let mut row = [1.0; 5];
    for (i, period) in PERIODS.iter().enumerate() {
        let angle = std::f64::consts::TAU * hour / period;
        row[1 + 2 * i] = angle.sin();
        row[2 + 2 * i] = angle.cos();
    }
    row
}

pub fn reading(hour: f64) -> f64 {
    features(hour).iter().zip(&TRUTH).map(|(x, w)| x * w).sum()
}
