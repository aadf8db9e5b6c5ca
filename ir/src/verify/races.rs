//! Races: every two steps of a GPU that conflict are ordered, by mechanisms that hold there; never a
//! repair, and no line shared with the passes that insert and remove orders.
//!
//! The passes go through the steps in time and remember what happened to each byte. Here it is the
//! other way round: the bytes of a buffer are gone through from the first to the last, with all
//! accesses to the current byte sorted by time.

mod accesses;
mod reach;

use crate::graph::{Graph, NodeId, Stage};
use crate::ops::Op;
use crate::schedule::{HazardKind, Layout, Mechanism, Reason, Region};
use crate::text::{Entity, print};
use crate::topology::{Device, DeviceKind};
use accesses::{Access, Conflict, conflicts};
use reach::Reach;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How many pairs of accesses of two steps are compared.
const MANY: usize = 1 << 12;

/// What can be wrong with the order of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OrderClass {
    /// Two steps conflict, and no order covers that: an error.
    Undeclared,
    /// An order does not reach the step that waits, by its mechanism or scope: an error.
    TooNarrow,
    /// An order makes a step wait for work that it has no hazard with.
    TooWide,
    /// An order that others imply.
    Redundant,
}

impl OrderClass {
    /// Every class with its name.
    pub const WORDS: &'static [(&'static str, OrderClass)] = &[
        ("undeclared", OrderClass::Undeclared),
        ("too-narrow", OrderClass::TooNarrow),
        ("too-wide", OrderClass::TooWide),
        ("redundant", OrderClass::Redundant),
    ];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            OrderClass::Undeclared => "undeclared",
            OrderClass::TooNarrow => "too-narrow",
            OrderClass::TooWide => "too-wide",
            OrderClass::Redundant => "redundant",
        }
    }

    /// Whether a program with such a fault may compute something else.
    pub fn is_error(self) -> bool {
        matches!(self, OrderClass::Undeclared | OrderClass::TooNarrow)
    }
}

impl fmt::Display for OrderClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One fault of the order.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderFault {
    /// Its class.
    pub class: OrderClass,
    /// Where.
    pub entity: Entity,
    /// What was found.
    pub message: String,
    /// The line of the graph's text that shows the entity, from 1.
    pub line: u32,
    /// For a fault that is no error, what it may cost a run, in microseconds.
    pub cost: Option<f64>,
}

/// What a proof of the order found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrderReport {
    /// Steps that a GPU runs. Without any there was nothing to prove.
    pub steps: usize,
    /// Orders between them.
    pub orders: usize,
    /// Conflicts that were looked at one by one; the others follow from these.
    pub conflicts: usize,
    /// Orders that only make the graph linear.
    pub linearised: usize,
    /// What those may cost a run, in microseconds, if the steps could overlap in full.
    pub linearised_cost: f64,
    /// Faults, by line.
    pub faults: Vec<OrderFault>,
}

impl OrderReport {
    /// Faults that are errors.
    pub fn errors(&self) -> impl Iterator<Item = &OrderFault> {
        self.faults.iter().filter(|fault| fault.class.is_error())
    }
}

/// Proves the order of a scheduled graph's steps on GPUs, and names every fault by its class. On
/// other devices one queue runs the schedule, which leaves nothing to prove.
///
/// The graph must be free of faults of structure and placement.
pub fn check_order(graph: &Graph) -> OrderReport {
    let mut proof = Proof::new(graph);
    if graph.stage != Stage::Scheduled || !proof.on_gpu() {
        return OrderReport::default();
    }
    let idle = |id| graph.node(id).op().is_none() || proof.shows_its_operand(id);
    if !is_ordered(graph) && !graph.nodes().all(idle) {
        let message = "no node is marked as a step: `insert-barriers` has not run".to_string();
        proof.faults.push((OrderClass::Undeclared, Entity::Graph, Found::Text(message), None));
        return proof.report(0, 0);
    }
    proof.marks();
    let conflicts = proof.conflicts();
    let orders = proof.orders();
    proof.report(conflicts, orders)
}

/// The errors among the faults, for [`super::verify`]: none before orders have been inserted.
pub(super) fn check(report: &mut super::Report<'_>) {
    if !is_ordered(report.graph) {
        return;
    }
    for fault in check_order(report.graph).faults {
        if fault.class.is_error() {
            report.context = fault.class.word();
            report.fault(fault.entity, fault.message);
        }
    }
}

fn is_ordered(graph: &Graph) -> bool {
    !graph.orders.is_empty() || graph.nodes().any(|id| graph.node(id).step.is_some())
}

/// What is said about an entity; names of values are filled in at the end.
enum Found {
    Text(String),
    Conflict(Conflict),
    /// About a step, which is named first.
    Named(NodeId, &'static str),
    Async(NodeId, Region),
}

struct Proof<'a> {
    graph: &'a Graph,
    steps: Vec<NodeId>,
    number: BTreeMap<NodeId, u32>,
    accesses: Vec<Access>,
    reach: Reach,
    /// Pairs of steps that were found to conflict, and how.
    conflicting: BTreeSet<(u32, u32, HazardKind)>,
    faults: Vec<(OrderClass, Entity, Found, Option<f64>)>,
    linearised: (usize, f64),
}

impl<'a> Proof<'a> {
    fn new(graph: &'a Graph) -> Proof<'a> {
        let is_step = |id: &NodeId| graph.node(*id).step.is_some();
        let steps: Vec<NodeId> = graph.schedule.iter().copied().filter(is_step).collect();
        let number: BTreeMap<NodeId, u32> = steps.iter().copied().zip(0..).collect();
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); steps.len()];
        for order in &graph.orders {
            if let (Some(a), Some(b)) = (number.get(&order.before), number.get(&order.after)) {
                before[*b as usize].push(*a);
            }
        }
        let accesses = accesses::of(graph, &steps);
        let reach = Reach::new(before);
        Proof {
            graph,
            steps,
            number,
            accesses,
            reach,
            conflicting: BTreeSet::new(),
            faults: Vec::new(),
            linearised: (0, 0.0),
        }
    }

    fn device(&self, id: NodeId) -> Option<&'a Device> {
        let device = self.graph.node(id).device?;
        self.graph.topology.as_ref()?.device(device)
    }

    fn on_gpu(&self) -> bool {
        let is_gpu = |id| self.device(id).is_some_and(|device| device.kind == DeviceKind::Gpu);
        self.graph.nodes().any(is_gpu)
    }

    /// Operators that are no steps must have nothing to do.
    fn marks(&mut self) {
        for id in self.graph.nodes() {
            let node = self.graph.node(id);
            if node.step.is_none() && node.op().is_some() && !self.shows_its_operand(id) {
                let message = "the node is no step, but its result is not its operand's bytes in \
                               the operand's place";
                let found = Found::Text(message.to_string());
                self.faults.push((OrderClass::Undeclared, Entity::Node(id), found, None));
            }
        }
    }

    fn shows_its_operand(&self, id: NodeId) -> bool {
        let node = self.graph.node(id);
        let (Some(Op::Reshape(_) | Op::Bitcast(_)), [operand, ..], [output]) =
            (node.op(), node.operands(), node.outputs())
        else {
            return false;
        };
        let (from, to) = (self.graph.value(*operand), self.graph.value(*output));
        let plain = from.layout == Layout::Contiguous && to.layout == Layout::Contiguous;
        let start = |region: &Region| (region.buffer, region.offset, region.extents.clone());
        plain && from.region.as_ref().map(start) == to.region.as_ref().map(start)
    }

    /// Looks for two steps that conflict without an order. Returns how many pairs it looked at.
    fn conflicts(&mut self) -> usize {
        let mut seen = BTreeSet::new();
        let mut unordered = BTreeMap::new();
        let mut narrow = BTreeMap::new();
        let (reach, accesses) = (&mut self.reach, &self.accesses);
        let conflicting = &mut self.conflicting;
        conflicts(accesses, &mut |a, b| {
            let (earlier, later) = (&accesses[a], &accesses[b]);
            if earlier.step == later.step || !seen.insert((a, b)) {
                return;
            }
            let kind = match (earlier.write, later.write) {
                (true, false) => HazardKind::ReadAfterWrite,
                (false, true) => HazardKind::WriteAfterRead,
                (true, true) => HazardKind::WriteAfterWrite,
                (false, false) => return,
            };
            let pair = (earlier.step, later.step);
            conflicting.insert((pair.0, pair.1, kind));
            if !reach.before(earlier.step, later.step) {
                let region = later.region.clone();
                unordered.entry(pair).or_insert(Conflict { pair, kind, region });
            } else if later.proxy && kind == HazardKind::ReadAfterWrite {
                narrow.entry(pair).or_insert_with(|| later.region.clone());
            }
        });
        for (pair, conflict) in unordered {
            let entity = Entity::Node(self.steps[pair.1 as usize]);
            self.faults.push((OrderClass::Undeclared, entity, Found::Conflict(conflict), None));
        }
        for ((earlier, later), region) in narrow {
            self.proxy(earlier, later, region);
        }
        seen.len()
    }

    /// The asynchronous proxy of a step without a fence reads what another has written: the last
    /// edge on some way from there must be a full one.
    fn proxy(&mut self, earlier: u32, later: u32, region: Region) {
        let (graph, after) = (self.graph, self.steps[later as usize]);
        let mut blamed = None;
        for (index, order) in graph.orders.iter().enumerate() {
            let Some(before) = self.number.get(&order.before).copied() else { continue };
            if order.after != after || !(before == earlier || self.reach.before(earlier, before)) {
                continue;
            }
            if order.mechanism == Mechanism::Edge {
                return;
            }
            blamed = blamed.or(Some(index as u32));
        }
        if let Some(index) = blamed {
            let found = Found::Async(after, region);
            self.faults.push((OrderClass::TooNarrow, Entity::Order(index), found, None));
        }
    }

    /// Looks at each order by itself. Returns how many lead from step to step.
    fn orders(&mut self) -> usize {
        let graph = self.graph;
        let mut counted = 0;
        let mut known: BTreeSet<(NodeId, NodeId)> = BTreeSet::new();
        let by_step = accesses::by_step(&self.accesses, self.steps.len());
        for (index, order) in graph.orders.iter().enumerate() {
            let entity = Entity::Order(index as u32);
            let numbers = (self.number.get(&order.before), self.number.get(&order.after));
            let (Some(before), Some(after)) = (numbers.0.copied(), numbers.1.copied()) else {
                let idle = if numbers.0.is_none() { order.before } else { order.after };
                let found = Found::Named(idle, "is no step: nothing can wait for it or be held");
                self.faults.push((OrderClass::TooNarrow, entity, found, None));
                continue;
            };
            counted += 1;
            if let Some(found) = self.unsound(order.mechanism, order.before, order.after) {
                self.faults.push((OrderClass::TooNarrow, entity.clone(), found, None));
            }
            let cost = self.cost(order.mechanism);
            if !known.insert((order.before, order.after)) || self.reach.implied(before, after) {
                let message = "other orders imply it".to_string();
                let found = (OrderClass::Redundant, entity, Found::Text(message), Some(cost));
                self.faults.push(found);
                continue;
            }
            let wait = cost + self.duration(order.before);
            let conflict = |kind: HazardKind, region: Option<&Region>| {
                let (a, b) = (&by_step[before as usize], &by_step[after as usize]);
                let known = || self.conflicting.contains(&(before, after, kind));
                // Steps of very many accesses are not compared in full.
                let many = a.len().saturating_mul(b.len()) > MANY;
                (region.is_none() || many) && known()
                    || !many && accesses::conflict(&self.accesses, a, b, kind, region)
            };
            match &order.reason {
                Reason::Linearise => {
                    self.linearised.0 += 1;
                    self.linearised.1 += wait;
                }
                Reason::Hazards(hazards) => {
                    let real =
                        hazards.iter().filter(|hazard| conflict(hazard.kind, Some(&hazard.region)));
                    let any = HazardKind::WORDS.iter().any(|(_, kind)| conflict(*kind, None));
                    let real = real.count();
                    let message = match (any, real == hazards.len()) {
                        (true, true) => continue,
                        (true, false) => "it names a hazard that there is not",
                        (false, _) => "the steps have no conflict",
                    };
                    let cost = if any { 0.0 } else { wait };
                    let found = Found::Text(message.to_string());
                    self.faults.push((OrderClass::TooWide, entity, found, Some(cost)));
                }
            }
        }
        counted
    }

    /// Why a mechanism does not hold between two steps, if it does not.
    fn unsound(&self, mechanism: Mechanism, before: NodeId, after: NodeId) -> Option<Found> {
        let text = |message: String| Some(Found::Text(message));
        match mechanism {
            // The end of a kernel, and the start of another after it: all memory is visible.
            Mechanism::Edge => None,
            Mechanism::Sequence => {
                text("no queue runs the steps of a GPU one after another".to_string())
            }
            Mechanism::Programmatic => {
                let devices = (self.graph.node(before).device, self.graph.node(after).device);
                if devices.0 != devices.1 {
                    let message = "a programmatic edge does not lead to another device";
                    return text(message.to_string());
                }
                let device = self.device(after)?;
                if !knows_programmatic(device) {
                    let (name, arch) = (&device.name, &device.arch);
                    let message = format!("`{name}` ({arch}) does not know programmatic edges");
                    return text(message);
                }
                let promise = self.graph.node(after).step.as_ref()?;
                let message = "does not promise to wait, so a programmatic edge does not hold it";
                (!promise.waits).then_some(Found::Named(after, message))
            }
        }
    }

    /// What an order of that kind costs, in microseconds.
    fn cost(&self, mechanism: Mechanism) -> f64 {
        let topology = self.graph.topology.as_ref();
        topology.and_then(|topology| topology.order_costs.get(&mechanism)).copied().unwrap_or(0.0)
    }

    /// The least time that a step takes, in microseconds: that of its bytes in memory.
    fn duration(&self, id: NodeId) -> f64 {
        let node = self.graph.node(id);
        let values = node.operands().iter().chain(node.outputs());
        let microseconds = values.filter_map(|value| {
            let value = self.graph.value(*value);
            let memory = self.graph.topology.as_ref()?.memory(value.memory?)?;
            let bytes = value.region.as_ref()?.bytes()? as f64;
            // 10⁹ bytes a second are 10³ a microsecond.
            (memory.bandwidth > 0.0).then(|| bytes / (memory.bandwidth * 1e3))
        });
        microseconds.sum()
    }

    fn report(self, conflicts: usize, orders: usize) -> OrderReport {
        let steps = self.steps.len();
        let (linearised, linearised_cost) = self.linearised;
        let mut report = OrderReport {
            steps,
            orders,
            conflicts,
            linearised,
            linearised_cost,
            faults: Vec::new(),
        };
        if self.faults.is_empty() {
            return report;
        }
        let printed = print(self.graph);
        let name = |id: NodeId| {
            let first = self.graph.node(id).outputs().first();
            first.map_or(String::new(), |value| printed.value(*value))
        };
        for (class, entity, found, cost) in self.faults {
            let message = match found {
                Found::Text(message) => message,
                Found::Named(id, what) => format!("`{}` {what}", name(id)),
                Found::Async(id, region) => format!(
                    "`{}` reads {region} by the asynchronous proxy without a fence, \
                     which takes a full edge",
                    name(id)
                ),
                Found::Conflict(conflict) => {
                    let (a, b) = conflict.pair;
                    let (a, b) = (name(self.steps[a as usize]), name(self.steps[b as usize]));
                    let (does, did) = match conflict.kind {
                        HazardKind::ReadAfterWrite => ("reads", "writes"),
                        HazardKind::WriteAfterRead => ("writes", "reads"),
                        HazardKind::WriteAfterWrite => ("writes", "writes"),
                    };
                    let region = conflict.region;
                    format!("`{b}` {does} {region}, which `{a}` {did} before; no order holds it")
                }
            };
            let line = printed.line(&entity);
            report.faults.push(OrderFault { class, entity, message, line, cost });
        }
        report.faults.sort_by_key(|fault| fault.line);
        report
    }
}

/// NVIDIA GPUs do from compute capability 9.0 on.
fn knows_programmatic(device: &Device) -> bool {
    let Some(version) = device.arch.strip_prefix("sm_") else { return false };
    let number = version.trim_end_matches(|c: char| c.is_ascii_lowercase());
    number.parse::<u32>().is_ok_and(|number| number >= 90)
}
