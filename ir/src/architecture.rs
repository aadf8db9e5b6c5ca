//! Names of GPU architectures, `sm_90a`, and which device runs the code of which; never what an
//! architecture can do.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// An architecture that code is compiled for. Greater ones are more specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Architecture {
    /// Compute capability, major.
    pub major: u32,
    /// Compute capability, minor.
    pub minor: u32,
    /// Which features beyond the common ones the code may use.
    pub features: Features,
}

/// Features that only some devices have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Features {
    /// None: the code runs on later devices of the same major number too.
    Common,
    /// `f`: those of the family, devices of the same major number.
    Family,
    /// `a`: those of this very compute capability.
    Specific,
}

/// A word is not the name of an architecture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an architecture; expected one like sm_80, sm_90a or sm_100a")]
pub struct ArchitectureError(pub String);

impl Architecture {
    /// The most specific architecture of a device of that compute capability.
    pub fn of_device(major: u32, minor: u32) -> Architecture {
        let features = if major >= 9 { Features::Specific } else { Features::Common };
        Architecture { major, minor, features }
    }

    /// Whether a device of compute capability `(major, minor)` runs code for this architecture.
    pub fn runs_on(self, (major, minor): (u32, u32)) -> bool {
        self.major == major
            && match self.features {
                Features::Specific => self.minor == minor,
                Features::Family | Features::Common => self.minor <= minor,
            }
    }

    fn rank(self) -> (u32, u32, Features) {
        (self.major, self.minor, self.features)
    }
}

impl PartialOrd for Architecture {
    fn partial_cmp(&self, other: &Architecture) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Architecture {
    fn cmp(&self, other: &Architecture) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.features {
            Features::Common => "",
            Features::Family => "f",
            Features::Specific => "a",
        };
        write!(f, "sm_{}{}{suffix}", self.major, self.minor)
    }
}

impl FromStr for Architecture {
    type Err = ArchitectureError;

    fn from_str(text: &str) -> Result<Architecture, ArchitectureError> {
        let parse = || {
            let number = text.strip_prefix("sm_")?;
            let (number, features) = match number.strip_suffix('a') {
                Some(number) => (number, Features::Specific),
                None => match number.strip_suffix('f') {
                    Some(number) => (number, Features::Family),
                    None => (number, Features::Common),
                },
            };
            let plain = number.bytes().all(|byte| byte.is_ascii_digit());
            if !plain || !matches!(number.len(), 2 | 3) || number.starts_with('0') {
                return None;
            }
            let (major, minor) = number.split_at(number.len() - 1);
            Some(Architecture { major: major.parse().ok()?, minor: minor.parse().ok()?, features })
        };
        parse().ok_or_else(|| ArchitectureError(text.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in ["sm_80", "sm_89", "sm_90", "sm_90a", "sm_100f", "sm_100a", "sm_120a"] {
            let found: Result<Architecture, _> = name.parse();
            assert_eq!(found.map(|a| a.to_string()).as_deref(), Ok(name));
        }
        for bad in ["", "sm_", "sm_9", "sm_090", "sm_90b", "sm_1000", "compute_90", "sm_9x", "cpu"]
        {
            assert!(bad.parse::<Architecture>().is_err(), "{bad}");
        }
    }

    #[test]
    fn devices_run_what_was_compiled_for_them() {
        let runs = |name: &str, device| {
            name.parse::<Architecture>().is_ok_and(|architecture| architecture.runs_on(device))
        };
        assert!(runs("sm_90a", (9, 0)) && !runs("sm_90a", (10, 0)) && !runs("sm_90a", (8, 0)));
        assert!(runs("sm_80", (8, 0)) && runs("sm_80", (8, 9)) && !runs("sm_80", (9, 0)));
        assert!(!runs("sm_86", (8, 0)));
        assert!(runs("sm_100f", (10, 3)) && !runs("sm_100a", (10, 3)));
        assert!(Architecture::of_device(9, 0) > Architecture::of_device(8, 9));
    }
}
