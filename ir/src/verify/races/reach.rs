//! Which steps come before which by way of orders; never whether an order is sound.

/// Steps on at most so many chains have clocks; what is wider is searched.
const CHAINS: usize = 64;

/// A search may look at so many steps, all searches together. Who needs more has written the orders
/// to waste time; what is not found in it counts as not ordered.
const LOOKS: usize = 1 << 26;

/// Steps and the orders between them.
pub(super) struct Reach {
    /// The steps right before each, ascending.
    before: Vec<Vec<u32>>,
    /// The chain of each: steps of one chain are before one another.
    chain: Vec<Option<usize>>,
    /// For each step and chain, one more than the last step of the chain that is before it or is it.
    clocks: Vec<Vec<u32>>,
    looks: usize,
}

impl Reach {
    /// Steps by number, in an order in which every step comes after those before it.
    pub(super) fn new(mut before: Vec<Vec<u32>>) -> Reach {
        let mut tails: Vec<u32> = Vec::new();
        let mut chain = Vec::with_capacity(before.len());
        let mut clocks: Vec<Vec<u32>> = Vec::with_capacity(before.len());
        for (step, earlier) in (0u32..).zip(before.iter_mut()) {
            earlier.sort_unstable();
            earlier.dedup();
            let mut clock = vec![0; tails.len()];
            for other in earlier.iter() {
                let other = &clocks[*other as usize];
                clock.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
            }
            let ends = (0..tails.len()).filter(|chain| clock[*chain] == tails[*chain] + 1);
            let mut own = ends.max_by_key(|chain| tails[*chain]);
            if own.is_none() && tails.len() < CHAINS {
                own = Some(tails.len());
                tails.push(step);
                clock.push(0);
            }
            if let Some(own) = own {
                tails[own] = step;
                clock[own] = step + 1;
            }
            chain.push(own);
            clocks.push(clock);
        }
        Reach { before, chain, clocks, looks: LOOKS }
    }

    /// Whether orders lead from a step to a later one.
    pub(super) fn before(&mut self, earlier: u32, later: u32) -> bool {
        if earlier >= later {
            return false;
        }
        if self.before[later as usize].binary_search(&earlier).is_ok() {
            return true;
        }
        match self.chain[earlier as usize] {
            Some(chain) => self.clocks[later as usize].get(chain).is_some_and(|c| *c > earlier),
            None => self.search(earlier, later),
        }
    }

    /// Whether orders lead from a step to a later one by way of a third. Of very many orders into
    /// one step only some are looked at.
    pub(super) fn implied(&mut self, earlier: u32, later: u32) -> bool {
        let from = self.before[later as usize].partition_point(|step| *step <= earlier);
        (from..self.before[later as usize].len()).take(4 * CHAINS).any(|index| {
            let middle = self.before[later as usize][index];
            self.before(earlier, middle)
        })
    }

    fn search(&mut self, earlier: u32, later: u32) -> bool {
        let mut seen = std::collections::BTreeSet::new();
        let mut open = vec![later];
        while let Some(step) = open.pop() {
            let before = &self.before[step as usize];
            let from = before.partition_point(|step| *step < earlier);
            for next in &before[from..] {
                if *next == earlier {
                    return true;
                }
                if self.looks == 0 {
                    return false;
                }
                self.looks -= 1;
                if seen.insert(*next) {
                    open.push(*next);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// Against the definition, narrow graphs and ones with more than [`CHAINS`] steps side by side.
    #[test]
    fn paths_are_found_as_by_definition() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let steps = 150;
            let span = if seed % 2 == 0 { 6 } else { 140 };
            let before: Vec<Vec<u32>> = (0..steps)
                .map(|step: i64| {
                    let count = if step == 0 { 0 } else { random.integer(0, 2) };
                    let low = (step - span).max(0);
                    (0..count).map(|_| random.integer(low, step - 1) as u32).collect()
                })
                .collect();
            let mut expected = vec![vec![false; steps as usize]; steps as usize];
            for (step, earlier) in before.iter().enumerate() {
                for other in earlier {
                    let other = *other as usize;
                    for (first, row) in expected.iter_mut().enumerate().take(other + 1) {
                        row[step] |= first == other || row[other];
                    }
                }
            }
            let mut reach = Reach::new(before.clone());
            for first in 0..steps as u32 {
                for last in 0..steps as u32 {
                    let path = expected[first as usize][last as usize];
                    assert_eq!(reach.before(first, last), path, "seed {seed}: {first} {last}");
                    let middle = before[last as usize].iter().any(|middle| {
                        expected[first as usize][*middle as usize] && *middle != first
                    });
                    assert_eq!(reach.implied(first, last), middle, "seed {seed}: {first} {last}");
                }
            }
        }
    }
}
