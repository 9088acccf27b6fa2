//! Demands that are alike, as one: what may be said of all of them without asking each.

use super::{Amounts, CPU, Capacity, Demand, GradeRule, amount_of};

/// Resources that the upper end of a range names at most. With more of them it counts as fitting
/// nowhere, so that widening a range does not cost more with every name.
const MOST_NAMES: usize = 64;

/// A name for the demands that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Likeness {
    /// They ask for just these amounts; for `None` only pod slots count.
    Same(Option<Amounts>),
    /// They ask for processors and memory in these octaves, whatever else they ask for.
    Near(Amounts),
}

impl Likeness {
    /// Returns the name that a demand shares with those that equal it.
    pub fn same(demand: Option<&Demand>) -> Self {
        Self::Same(demand.map(|it| it.requests.clone()))
    }

    /// Returns the name that a demand shares with those that are near it.
    pub fn near(demand: Option<&Demand>) -> Self {
        let requests = demand.into_iter().flat_map(|it| it.requests.iter());
        let main = requests.filter(|(name, _)| matches!(&**name, CPU | "memory"));
        let octave = |amount: i64| i64::from(amount.max(1).ilog2());
        Self::Near(
            main.map(|(name, amount)| (name.clone(), octave(*amount)))
                .collect(),
        )
    }
}

/// One demand, or the demands between two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// It fits wherever one of them fits.
    least: Option<Demand>,
    most: Most,
}

/// The upper end of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Most {
    /// Where it fits, each demand of the range fits.
    Demand(Option<Demand>),
    /// Too many resources to tell: nothing is known to fit.
    Nowhere,
}

impl Range {
    /// Returns the range of one demand.
    pub fn of(demand: Option<&Demand>) -> Self {
        Self {
            least: demand.cloned(),
            most: Most::Demand(demand.cloned()),
        }
    }

    /// Returns whether the range holds one demand only.
    fn is_single(&self) -> bool {
        matches!(&self.most, Most::Demand(most) if *most == self.least)
    }

    /// Makes the range wide enough for a further demand.
    pub fn include(&mut self, demand: Option<&Demand>) {
        if self.is_single() && self.least.as_ref() == demand {
            return;
        }
        self.least = match (&self.least, demand) {
            (Some(least), Some(demand)) => Some(least.in_common(demand)),
            // Where only pod slots count, as many fit as of any demand, or more.
            _ => None,
        };
        let Most::Demand(most) = &self.most else {
            return;
        };
        let most = match (most, demand) {
            (Some(most), Some(demand)) => Some(most.combined(demand)),
            (most, demand) => most.as_ref().or(demand).cloned(),
        };
        let is_long = |most: &Demand| most.requests.len() > MOST_NAMES;
        self.most = if most.as_ref().is_some_and(is_long) {
            Most::Nowhere
        } else {
            Most::Demand(most)
        };
    }

    /// Returns the most replicas of one of the demands that fit `now` and did not fit `before`. Of
    /// a single demand it is their exact number; of several it is never less than that of each.
    pub fn growth(&self, before: Option<&Capacity>, now: &Capacity, rule: GradeRule) -> i64 {
        let fit_now = now.replicas(self.least.as_ref(), rule);
        if fit_now == 0 {
            return 0;
        }
        let fitted = match (before, &self.most) {
            (Some(before), Most::Demand(most)) => before.replicas(most.as_ref(), rule),
            _ => 0,
        };
        let growth = (fit_now - fitted).max(0);
        match before {
            Some(before) if growth > 0 && !self.is_single() => {
                growth.min(self.gain(before, now, rule).unwrap_or(growth))
            }
            _ => growth,
        }
    }

    /// Returns a bound of the growth by the room that was gained alone; `None` where the two
    /// capacities cannot be compared so.
    fn gain(&self, before: &Capacity, now: &Capacity, rule: GradeRule) -> Option<i64> {
        let least = self.least.as_ref()?;
        let pods = now.pods.max(0) - before.pods.max(0);
        let gain = match (&before.grades, &now.grades) {
            (None, None) => self.gain_of_sums(least, before, now)?,
            (Some(_), Some(_)) if rule == GradeRule::Ignored => {
                self.gain_of_sums(least, before, now)?
            }
            (Some(before), Some(now))
                if rule != GradeRule::Averages && before.model == now.model =>
            {
                let nodes = now.nodes.iter().zip(&before.nodes);
                let gained = nodes.map(|(now, before)| (now - before).max(0));
                let by_grade = now.model.grades.iter().zip(gained);
                by_grade.fold(0i64, |sum, (grade, nodes)| {
                    let each = grade.room(least, rule);
                    sum.saturating_add(each.saturating_mul(nodes))
                })
            }
            _ => return None,
        };
        Some(gain.max(pods))
    }

    /// Returns the bound of the growth for sums: of no resource more is gained than, rounded up,
    /// fits into what it grew by.
    fn gain_of_sums(&self, least: &Demand, before: &Capacity, now: &Capacity) -> Option<i64> {
        let Most::Demand(Some(most)) = &self.most else {
            return None;
        };
        let names = |demand: &Demand| demand.requests.len();
        if names(most) != names(least) {
            return None;
        }
        let gains = least.requests.iter().map(|(name, request)| {
            let free = |of: &Capacity| {
                let place = of.names.binary_search(name);
                place.map_or(0, |place| of.free[place].max(0))
            };
            let gained = (free(now) - free(before)).max(0);
            gained / request + i64::from(gained % request > 0)
        });
        Some(gains.max().unwrap_or(0))
    }
}

impl Demand {
    /// Returns what both ask for: of each resource the lesser amount.
    fn in_common(&self, other: &Self) -> Self {
        let both = self.requests.iter().filter_map(|(name, amount)| {
            let least = amount_of(&other.requests, name)?.min(*amount);
            Some((name.clone(), least))
        });
        both.collect()
    }

    /// Returns what either asks for: of each resource the greater amount.
    fn combined(&self, other: &Self) -> Self {
        let ours = self.requests.iter().map(|(name, amount)| {
            let theirs = amount_of(&other.requests, name).unwrap_or(0);
            (name.clone(), theirs.max(*amount))
        });
        let is_new = |(name, _): &&(Box<str>, i64)| amount_of(&self.requests, name).is_none();
        let theirs = other.requests.iter().filter(is_new).cloned();
        ours.chain(theirs).collect()
    }
}

#[cfg(test)]
mod tests;
