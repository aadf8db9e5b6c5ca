//! `rewrite`: finds fused operators in their parts, in an e-graph; never a rule without a test on
//! random shapes, and never a limit in time.

mod cost;
mod extract;
mod language;
mod plan;
mod region;
mod rules;
mod saturate;

use crate::dead_code::remove_replaced;
use cost::Costs;
use membar_ir::graph::Graph;
use membar_ir::ops::Op;
use membar_ir::pass::{Changed, PassContext, PassError, Rewriting, Rewritten, RuleStatistics};
use plan::{New, Plan, Replacements};
use region::{Region, Shape, regions};
use rules::{Rule, rules};
use saturate::{Statistics, saturate};
use std::collections::HashMap;
use std::sync::Arc;

/// Replaces parts of a graph by operators that they are equal to, where that is cheaper:
///
/// ```text
/// graph @g(%x: f32[B, 64]) where B in 1..=8 {
///   %one = weight 1.0 : f32[]
///   %root = weight 1.4142135 : f32[]
///   %half = weight 0.5 : f32[]
///   %a = div %x, %root : f32[B, 64]
///   %b = erf %a : f32[B, 64]
///   %c = add %b, %one : f32[B, 64]
///   %d = mul %x, %c : f32[B, 64]
///   %y = mul %d, %half : f32[B, 64]
///   return %y
/// }
/// ```
/// becomes
/// ```text
/// graph @g(%x: f32[B, 64]) where B in 1..=8 {
///   %y = gelu %x {form = erf} : f32[B, 64]
///   return %y
/// }
/// ```
///
/// The graph is cut into regions, where what stands around says so, so that the cuts fall on the same
/// places of repeated blocks; a region also sees the operators before it, so that no cut hides a
/// pattern. Equal regions are rewritten once. In each, the rules are applied in an e-graph until they
/// find nothing new; what is cheapest then stands for the region: a roofline of the machine's, and an
/// order for each step. An operator without a kernel costs what it is made of, so that nothing is
/// found which `decompose` would only take apart again, and dearer.
///
/// Results are equal up to rounding. Limits are counts, so the same graph gives the same result.
///
/// # Errors
/// A rule made equal what is not: a defect of the rule.
pub fn rewrite(graph: &mut Graph, cx: &mut PassContext) -> Result<Changed, PassError> {
    let rules: Vec<&'static Rule> = rules().collect();
    let mut statistics = vec![Statistics::default(); rules.len()];
    let relevant = |op: &Op| rules.iter().any(|rule| (rule.witness)(op));
    let regions = regions(graph, &relevant);
    let mut plans: HashMap<Shape, Option<Arc<Plan>>> = HashMap::new();
    let symbols = Arc::new(graph.symbols.clone());
    let costs = Costs::new(graph, cx);
    let mut replacements = Replacements::default();
    let (mut faults, mut places) = (Vec::new(), Vec::new());
    let mut limited = 0;
    for region in &regions {
        let plan = match plans.get(&region.shape) {
            Some(plan) => plan.clone(),
            None => {
                let found = match saturate(&region.shape, &symbols, &rules, &mut statistics) {
                    Ok(found) => found,
                    Err(fault) => {
                        faults.push(fault);
                        continue;
                    }
                };
                let plan = found.and_then(|saturated| {
                    limited += usize::from(saturated.limited);
                    let choice = extract::extract(&region.shape, &saturated, &costs);
                    plan::plan(&region.shape, &saturated, &choice, &costs).map(Arc::new)
                });
                plans.insert(region.shape.clone(), plan.clone());
                plan
            }
        };
        if let Some(plan) = plan {
            places.extend(plan.new.iter().filter_map(|new| rewritten(graph, region, new, &rules)));
            replacements.apply(graph, region, &plan);
        }
    }
    if !faults.is_empty() {
        return Err(PassError::Faults(faults));
    }
    let changed = !replacements.nodes.is_empty();
    remove_replaced(graph, replacements.nodes);
    if limited > 0 {
        cx.notes.push(format!("{limited} regions have more equal forms than were looked at"));
    }
    let rules = rules.iter().zip(&statistics).map(|(rule, found)| RuleStatistics {
        name: rule.name,
        summary: rule.summary,
        rounding: rule.rounding.word(),
        matches: found.matches,
        unions: found.unions,
        ms: found.time.as_secs_f64() * 1e3,
    });
    let (regions, distinct) = (regions.len(), plans.len());
    cx.rewriting = Some(Rewriting { regions, distinct, rules: rules.collect(), places });
    Ok(changed.into())
}

/// What a new operator stands for, for people; `None` of one that only serves another.
fn rewritten(graph: &Graph, region: &Region, new: &New, rules: &[&Rule]) -> Option<Rewritten> {
    let label = |node: &u32| region.nodes.get(*node as usize).map(|id| graph.label(*id));
    (!new.sources.is_empty()).then_some(())?;
    Some(Rewritten {
        op: new.op.mnemonic(),
        node: label(&new.place.node)?,
        rules: new.rules.iter().filter_map(|rule| Some(rules.get(*rule)?.name)).collect(),
        sources: new.sources.iter().filter_map(label).collect(),
        before_us: new.before,
        after_us: new.after,
    })
}
