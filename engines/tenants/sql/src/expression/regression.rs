//! Aggregates of pairs of numbers: covariance, correlation and linear regression.
//!
//! The sums are kept as Youngs and Cramer do it, in PostgreSQL's order of operations, so that their last digits are PostgreSQL's.

use savanna_tenants_values::{
    error::{Result, SqlError, state},
    value::Value,
};

/// What is computed of pairs (y, x).
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regression {
    Corr,
    CovarPop,
    CovarSamp,
    AvgX,
    AvgY,
    Count,
    Intercept,
    R2,
    Slope,
    Sxx,
    Sxy,
    Syy,
}

impl Regression {
    /// That of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "corr" => Self::Corr,
            "covar_pop" => Self::CovarPop,
            "covar_samp" => Self::CovarSamp,
            "regr_avgx" => Self::AvgX,
            "regr_avgy" => Self::AvgY,
            "regr_count" => Self::Count,
            "regr_intercept" => Self::Intercept,
            "regr_r2" => Self::R2,
            "regr_slope" => Self::Slope,
            "regr_sxx" => Self::Sxx,
            "regr_sxy" => Self::Sxy,
            "regr_syy" => Self::Syy,
            _ => return None,
        })
    }
}

/// Sums over pairs, and of products of their distances from the mean.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pairs {
    count: f64,
    x: f64,
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
}

impl Pairs {
    /// Takes a pair.
    ///
    /// # Errors
    /// 22003.
    pub fn add(&mut self, y: f64, x: f64) -> Result<()> {
        let before = *self;
        self.count += 1.0;
        self.x += x;
        self.y += y;
        if before.count == 0.0 {
            if !x.is_finite() {
                (self.xx, self.xy) = (f64::NAN, f64::NAN);
            }
            if !y.is_finite() {
                (self.yy, self.xy) = (f64::NAN, f64::NAN);
            }
            return Ok(());
        }
        let (from_x, from_y) = (x * self.count - self.x, y * self.count - self.y);
        let scale = 1.0 / (self.count * before.count);
        self.xx += from_x * from_x * scale;
        self.yy += from_y * from_y * scale;
        self.xy += from_x * from_y * scale;
        if [self.x, self.xx, self.y, self.yy, self.xy].into_iter().any(f64::is_infinite) {
            let x_overflows =
                [self.x, self.xx].into_iter().any(f64::is_infinite) && before.x.is_finite() && x.is_finite();
            let y_overflows =
                [self.y, self.yy].into_iter().any(f64::is_infinite) && before.y.is_finite() && y.is_finite();
            let all_finite = [before.x, x, before.y, y].into_iter().all(f64::is_finite);
            if x_overflows || y_overflows || (self.xy.is_infinite() && all_finite) {
                return Err(SqlError::new(state::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
            }
            for sum in [&mut self.xx, &mut self.yy, &mut self.xy] {
                if sum.is_infinite() {
                    *sum = f64::NAN;
                }
            }
        }
        Ok(())
    }

    /// What came of all pairs.
    pub fn finish(&self, what: Regression) -> Value {
        let Self { count, x, xx, y, yy, xy } = *self;
        let least = if what == Regression::CovarSamp { 2.0 } else { 1.0 };
        if what == Regression::Count {
            return Value::Int(count as i64);
        }
        let is_nothing = match what {
            Regression::Corr => xx == 0.0 || yy == 0.0,
            Regression::R2 | Regression::Slope | Regression::Intercept => xx == 0.0,
            _ => false,
        };
        if count < least || is_nothing {
            return Value::Null;
        }
        Value::Float(match what {
            Regression::Corr => xy / (xx * yy).sqrt(),
            Regression::CovarPop => xy / count,
            Regression::CovarSamp => xy / (count - 1.0),
            Regression::AvgX => x / count,
            Regression::AvgY => y / count,
            Regression::Intercept => (y - x * xy / xx) / count,
            // A horizontal line fits wholly.
            Regression::R2 if yy == 0.0 => 1.0,
            Regression::R2 => (xy * xy) / (xx * yy),
            Regression::Slope => xy / xx,
            Regression::Sxx => xx,
            Regression::Sxy => xy,
            Regression::Syy | Regression::Count => yy,
        })
    }
}
