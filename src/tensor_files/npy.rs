//! One array in NumPy's `.npy` form, versions 1.0 to 3.0 (NumPy Enhancement Proposal 1): a header,
//! which is a Python dictionary literal, and the elements. It must never evaluate more of Python
//! than that literal.

use super::{ArrayFault, check_truth_values};
use membar_ir::dtype::DType;
use membar_ir::tensor::Tensor;
use membar_ir::types::ConcreteType;
use std::io::{self, Read, Write};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// NumPy's own reader refuses longer headers too; ours are about 100 bytes.
const MAX_HEADER_BYTES: u32 = 10_000;

/// The header is padded so that the elements start at a multiple of this.
const ALIGNMENT: usize = 64;

/// Element types that both sides have, as NumPy writes them without their byte order.
const ELEMENT_TYPES: &[(DType, &str)] = &[
    (DType::F64, "f8"),
    (DType::F32, "f4"),
    (DType::F16, "f2"),
    (DType::I64, "i8"),
    (DType::I32, "i4"),
    (DType::I16, "i2"),
    (DType::I8, "i1"),
    (DType::U64, "u8"),
    (DType::U32, "u4"),
    (DType::U16, "u2"),
    (DType::U8, "u1"),
    (DType::Bool, "b1"),
];

/// Reads an array that takes exactly `length` bytes. Memory is taken after the header has been found
/// to ask for just that many.
///
/// # Errors
/// [`ArrayFault`] for whatever is not a supported array.
pub fn read(reader: &mut impl Read, length: u64) -> Result<Tensor, ArrayFault> {
    let (header, header_length) = read_header(reader)?;
    let ty = ConcreteType::new(header.dtype, header.shape)?;
    let expected = header_length.saturating_add(ty.byte_len() as u64);
    if expected != length {
        return Err(ArrayFault::Length { expected, found: length });
    }
    let mut tensor = Tensor::zeros(ty);
    reader.read_exact(tensor.bytes_mut())?;
    if header.column_major {
        tensor = to_row_major(&tensor);
    }
    check_truth_values(&tensor)?;
    Ok(tensor)
}

/// Writes an array in row-major order.
///
/// # Errors
/// [`ArrayFault::NotInNpz`], or what the writer gives.
pub fn write(writer: &mut impl Write, tensor: &Tensor) -> Result<(), ArrayFault> {
    writer.write_all(&header(tensor)?)?;
    writer.write_all(tensor.bytes())?;
    Ok(())
}

/// Whether `.npy` can hold elements of that type.
pub fn holds(dtype: DType) -> bool {
    code(dtype).is_some()
}

fn code(dtype: DType) -> Option<&'static str> {
    ELEMENT_TYPES.iter().find(|(known, _)| *known == dtype).map(|(_, code)| *code)
}

fn header(tensor: &Tensor) -> Result<Vec<u8>, ArrayFault> {
    let code = code(tensor.dtype()).ok_or(ArrayFault::NotInNpz(tensor.dtype()))?;
    let order = if code.ends_with('1') { '|' } else { '<' };
    let mut shape = String::new();
    for extent in tensor.shape() {
        shape.push_str(&format!("{extent}, "));
    }
    // Python needs the comma in a tuple of one and likes none after the last of several.
    let shape = match tensor.shape().len() {
        1 => shape.trim_end().to_owned(),
        _ => shape.trim_end_matches(", ").to_owned(),
    };
    let mut text =
        format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({shape}), }}");
    let prefix = MAGIC.len() + 4;
    let unpadded = prefix + text.len() + 1;
    text.push_str(&" ".repeat(unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    text.push('\n');
    let Ok(length) = u16::try_from(text.len()) else {
        return Err(ArrayFault::Header(format!(
            "{} dimensions are too many",
            tensor.shape().len()
        )));
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.bytes());
    Ok(bytes)
}

struct Header {
    dtype: DType,
    column_major: bool,
    shape: Vec<usize>,
}

/// Gives the header and its length in bytes with everything before the elements.
fn read_header(reader: &mut impl Read) -> Result<(Header, u64), ArrayFault> {
    let mut start = [0; 8];
    reader.read_exact(&mut start)?;
    let [magic @ .., major, _minor] = start;
    if magic != *MAGIC {
        return Err(ArrayFault::Header("it does not begin as a `.npy` array".to_owned()));
    }
    let (field, text_length) = match major {
        1 => {
            let mut field = [0; 2];
            reader.read_exact(&mut field)?;
            (2, u32::from(u16::from_le_bytes(field)))
        }
        2 | 3 => {
            let mut field = [0; 4];
            reader.read_exact(&mut field)?;
            (4, u32::from_le_bytes(field))
        }
        other => {
            let reason = format!("version {other} of the format; versions 1 to 3 are supported");
            return Err(ArrayFault::Header(reason));
        }
    };
    if text_length > MAX_HEADER_BYTES {
        let reason = format!("{text_length} bytes; at most {MAX_HEADER_BYTES} are read");
        return Err(ArrayFault::Header(reason));
    }
    let mut text = Vec::new();
    reader.take(u64::from(text_length)).read_to_end(&mut text)?;
    if text.len() as u64 != u64::from(text_length) {
        return Err(ArrayFault::Contents(io::ErrorKind::UnexpectedEof.into()));
    }
    let text =
        str::from_utf8(&text).map_err(|_| ArrayFault::Header("it is not UTF-8 text".to_owned()))?;
    let header = Literal { rest: text }.header()?;
    Ok((header, start.len() as u64 + field + u64::from(text_length)))
}

/// What is left of the dictionary literal.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn header(mut self) -> Result<Header, ArrayFault> {
        let (mut dtype, mut column_major, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.eat('}') {
            let key = self.string()?;
            self.expect(':')?;
            let is_new = match key {
                "descr" => dtype.replace(self.dtype()?).is_none(),
                "fortran_order" => column_major.replace(self.boolean()?).is_none(),
                "shape" => shape.replace(self.tuple()?).is_none(),
                _ => false,
            };
            if !is_new {
                return Err(ArrayFault::Header(format!("unexpected key `{key}`")));
            }
            if !self.eat(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err(self.unexpected("the end"));
        }
        let missing = |key: &str| ArrayFault::Header(format!("it lacks `{key}`"));
        Ok(Header {
            dtype: dtype.ok_or_else(|| missing("descr"))?,
            column_major: column_major.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn dtype(&mut self) -> Result<DType, ArrayFault> {
        if self.peek('[') {
            return Err(ArrayFault::ElementType("a structure of fields".to_owned()));
        }
        let text = self.string()?;
        let (order, code) = match text.chars().next() {
            Some(order @ ('<' | '>' | '=' | '|')) => (Some(order), &text[1..]),
            _ => (None, text),
        };
        if code.starts_with('O') {
            return Err(ArrayFault::Objects);
        }
        let known = ELEMENT_TYPES.iter().find(|(_, known)| *known == code);
        let Some((dtype, _)) = known else {
            return Err(ArrayFault::ElementType(text.to_owned()));
        };
        if order == Some('>') && dtype.bits() > 8 {
            return Err(ArrayFault::BigEndian(text.to_owned()));
        }
        Ok(*dtype)
    }

    fn boolean(&mut self) -> Result<bool, ArrayFault> {
        self.skip_space();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.unexpected("`True` or `False`"))
    }

    fn tuple(&mut self) -> Result<Vec<usize>, ArrayFault> {
        let mut extents = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            extents.push(self.extent()?);
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(extents)
    }

    fn extent(&mut self) -> Result<usize, ArrayFault> {
        self.skip_space();
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let extent = digits.parse().map_err(|_| self.unexpected("a dimension"))?;
        // Python 2 wrote long integers so.
        self.rest = rest.strip_prefix('L').unwrap_or(rest);
        Ok(extent)
    }

    /// A string without escapes, in either kind of quote.
    fn string(&mut self) -> Result<&'a str, ArrayFault> {
        self.skip_space();
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let parts = quote.and_then(|quote| self.rest[1..].split_once(quote));
        let Some((text, rest)) = parts else {
            return Err(self.unexpected("a string"));
        };
        self.rest = rest;
        Ok(text)
    }

    fn expect(&mut self, wanted: char) -> Result<(), ArrayFault> {
        if self.eat(wanted) { Ok(()) } else { Err(self.unexpected(&format!("`{wanted}`"))) }
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn peek(&mut self, wanted: char) -> bool {
        self.skip_space();
        self.rest.starts_with(wanted)
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn unexpected(&self, expected: &str) -> ArrayFault {
        let found: String = self.rest.trim_start().chars().take(16).collect();
        ArrayFault::Header(format!("expected {expected}, found `{}`", found.escape_debug()))
    }
}

/// Reorders elements that are stored with the first dimension innermost.
fn to_row_major(tensor: &Tensor) -> Tensor {
    let (shape, elements) = (tensor.shape(), tensor.elements());
    let mut result = Tensor::zeros(tensor.ty().clone());
    if elements == 0 {
        return result;
    }
    let size = tensor.bytes().len() / elements;
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for extent in shape {
        strides.push(stride);
        stride *= extent;
    }
    let source = tensor.bytes();
    let mut index = vec![0; shape.len()];
    let mut position = 0;
    for element in result.bytes_mut().chunks_exact_mut(size) {
        element.copy_from_slice(&source[position * size..(position + 1) * size]);
        // Count up with the last dimension innermost, as the result is ordered.
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            position += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            position -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    result
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A `.npy` array of that header and those bytes of elements, as a hostile writer might make it.
    pub fn array(version: u8, header: &str, elements: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        bytes.extend(header.bytes());
        bytes.extend(elements);
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Tensor, ArrayFault> {
        read(&mut &bytes[..], bytes.len() as u64)
    }

    fn message(bytes: &[u8]) -> String {
        parse(bytes).map_or_else(|fault| fault.to_string(), |tensor| format!("{tensor:?}"))
    }

    #[test]
    fn all_versions_and_spellings_are_read() {
        let expected = Tensor::from_elements(&[2], &[1u16, 0x0302]).expect("two elements");
        let elements = [1, 0, 2, 3];
        for (version, header) in [
            (1, "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }     \n"),
            (2, "{\"shape\":(2L,),\"descr\":\"<u2\",\"fortran_order\":False}"),
            (3, " { 'fortran_order' : True , 'shape' : ( 2 , ) , 'descr' : '=u2' } "),
        ] {
            assert_eq!(parse(&array(version, header, &elements)).expect(header), expected);
        }
    }

    #[test]
    fn column_major_arrays_are_turned() {
        let header = "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 1, 3), }";
        let elements: Vec<u8> =
            [0i16, 10, 1, 11, 2, 12].iter().flat_map(|x| x.to_le_bytes()).collect();
        let expected = Tensor::from_elements(&[2, 1, 3], &[0i16, 1, 2, 10, 11, 12]).expect("six");
        assert_eq!(parse(&array(1, header, &elements)).expect("valid"), expected);
    }

    #[test]
    fn empty_and_scalar_arrays_are_read() {
        let header = "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 0, 2), }";
        assert_eq!(parse(&array(1, header, &[])).expect("empty").shape(), [3, 0, 2]);
        let header = "{'descr': '|b1', 'fortran_order': False, 'shape': (), }";
        assert_eq!(parse(&array(1, header, &[1])).expect("scalar").shape(), [0usize; 0]);
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let header = |descr: &str| {
            array(
                1,
                &format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}"),
                &[2],
            )
        };
        for (descr, expected) in [
            ("'>f4'", "big-endian"),
            ("'|O'", "Python objects"),
            ("[('a', '<f4'), ('b', '<i4')]", "a structure of fields"),
            ("'<c8'", "`<c8` is not supported"),
            ("'<U3'", "`<U3` is not supported"),
            ("'<V2'", "`<V2` is not supported"),
            ("'é'", "`é` is not supported"),
            ("''", "`` is not supported"),
            ("'|b1'", "truth value stored as 2"),
        ] {
            let message = message(&header(descr));
            assert!(message.contains(expected), "{descr}: {message}");
        }
    }

    #[test]
    fn damaged_headers_are_refused() {
        let fine = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }";
        for (version, header, expected) in [
            (4, fine, "version 4"),
            (1, "", "expected `{`"),
            (1, "{", "expected a string"),
            (1, "{'descr': '|u1', 'fortran_order': False}", "lacks `shape`"),
            (1, "{'descr': '|u1', 'descr': '|u1'}", "unexpected key `descr`"),
            (1, "{'descr': '|u1', 'order': False}", "unexpected key `order`"),
            (1, "{'descr': '|u1', 'fortran_order': 1}", "expected `True` or `False`"),
            (1, "{'shape': (-1,)}", "expected a dimension, found `-1,)}`"),
            (1, "{'shape': (1.5,)}", "expected `)`"),
            (1, "{'shape': (99999999999999999999,)}", "expected a dimension"),
            (1, "{'shape': (1 2)}", "expected `)`"),
            (1, "{'shape': 'é", "expected `(`"),
            (1, "{'descr': 'u1", "expected a string"),
            (
                1,
                "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), } + 1",
                "expected the end",
            ),
        ] {
            let message = message(&array(version, header, &[7]));
            assert!(message.contains(expected), "{header}: {message}");
        }
        let long = " ".repeat(MAX_HEADER_BYTES as usize + 1);
        assert!(message(&array(2, &long, &[])).contains("at most"));
        assert!(message(&array(1, "\u{0}", &[]).split_off(3)).contains("does not begin"));
    }

    #[test]
    fn sizes_are_checked_before_memory_is_taken() {
        for (shape, expected) in [
            ("(1099511627776,)", "its header asks for"),
            ("(4294967296, 4294967296)", "does not fit the address space"),
            ("(0, 4294967296, 4294967296)", "does not fit the address space"),
            ("(2,)", "its header asks for"),
            ("(0,)", "its header asks for"),
        ] {
            let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
            let message = message(&array(1, &header, &[0; 8]));
            assert!(message.contains(expected), "{shape}: {message}");
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        let tensor = Tensor::from_elements(&[2], &[1f32, 2.0]).expect("two elements");
        let mut whole = Vec::new();
        write(&mut whole, &tensor).expect("writes");
        assert_eq!(parse(&whole).expect("whole"), tensor);
        for length in 0..whole.len() {
            // The archive may also lie about the length.
            assert!(parse(&whole[..length]).is_err());
            assert!(read(&mut &whole[..length], whole.len() as u64).is_err());
        }
    }

    #[test]
    fn elements_start_aligned() {
        for shape in [vec![], vec![3], vec![1; 30], vec![1; 64]] {
            let tensor = Tensor::zeros(ConcreteType::new(DType::I8, shape).expect("small"));
            let header = header(&tensor).expect("short");
            assert!(header.len().is_multiple_of(ALIGNMENT));
            assert!(header.ends_with(b"\n"));
        }
    }
}
