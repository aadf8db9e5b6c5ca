//! Which kernel parameters the read-only loads of PTX text read from; never anything else of PTX.

use std::collections::{BTreeMap, BTreeSet};

/// The numbers of a kernel's parameters from which the addresses of its `ld.global.nc` derive. What a
/// function that is not inlined reads counts as if its parameters were the kernel's.
pub fn read_only_parameters(ptx: &str) -> BTreeSet<usize> {
    // Every function numbers its registers anew.
    let mut functions = vec![String::new()];
    for line in ptx.lines() {
        if line.contains(".entry ") || line.contains(".func ") {
            functions.push(String::new());
        }
        if let Some(function) = functions.last_mut() {
            function.push_str(line);
            function.push('\n');
        }
    }
    functions.iter().flat_map(|function| of_function(function)).collect()
}

fn of_function(ptx: &str) -> BTreeSet<usize> {
    let mut sources: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    // Registers are assigned before they are read except in loops, so this ends soon.
    loop {
        let before = (sources.values().map(BTreeSet::len).sum::<usize>(), found.len());
        for line in ptx.lines().map(str::trim) {
            // A predicate may stand in front.
            let line =
                line.strip_prefix('@').and_then(|rest| rest.split_once(' ')).map_or(line, |x| x.1);
            let Some((mnemonic, rest)) = line.split_once(|c: char| c.is_whitespace()) else {
                continue;
            };
            let reads = registers(rest);
            if mnemonic.starts_with("ld.param") {
                let number = rest
                    .rsplit("_param_")
                    .next()
                    .map(|text| text.chars().take_while(char::is_ascii_digit).collect::<String>());
                if let (Some(target), Some(Ok(number))) = (reads.first(), number.map(|n| n.parse()))
                {
                    sources.entry(target).or_default().insert(number);
                }
                continue;
            }
            let address = rest.split_once('[').map_or("", |(_, rest)| rest);
            if mnemonic.starts_with("ld.global") && mnemonic.contains(".nc") {
                for register in registers(address) {
                    found.extend(sources.get(register).into_iter().flatten());
                }
            }
            // What a load gives does not derive from its address.
            if mnemonic.starts_with("ld.") || reads.len() < 2 {
                continue;
            }
            let origins: BTreeSet<usize> =
                reads[1..].iter().filter_map(|r| sources.get(r)).flatten().copied().collect();
            sources.entry(reads[0]).or_default().extend(origins);
        }
        if before == (sources.values().map(BTreeSet::len).sum::<usize>(), found.len()) {
            return found;
        }
    }
}

/// The registers of a line's operands, in order.
fn registers(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '%';
    text.split(|c: char| !is_name(c)).filter(|word| word.starts_with('%')).collect()
}

#[test]
fn read_only_loads_are_traced_to_their_parameters() {
    let ptx = "
	ld.param.u64 	%rd1, [f_param_0];
	ld.param.b64 	%rd2, [f_param_12];
	ld.param.u32 	%r9, [f_param_3];
	cvta.to.global.u64 	%rd3, %rd1;
	cvta.to.global.u64 	%rd5, %rd2;
	mul.wide.u32 	%rd4, %r9, 4;
	add.s64 	%rd6, %rd5, %rd4;
	ld.global.u64 	%rd7, [%rd3];
	@%p1 ld.global.nc.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd6+16];
	add.s64 	%rd8, %rd7, 4;
	ld.global.nc.u32 	%r1, [%rd8];
";
    assert_eq!(read_only_parameters(ptx), BTreeSet::from([3, 12]));
    assert_eq!(read_only_parameters(&ptx.replace(".nc", "")), BTreeSet::new());
    // A register of the same name in another function is another one.
    let other =
        format!(".func g(\n\tld.param.u64 \t%rd6, [g_param_7];\n)\n.visible .entry f({ptx}");
    assert_eq!(read_only_parameters(&other), BTreeSet::from([3, 12]));
}
