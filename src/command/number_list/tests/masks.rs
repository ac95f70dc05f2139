//! What the tests of opencontainers/cgroups (`RangeToBits`), runc (`ToCPUSet`) and flux-core (`sdexec_parse_bitmap`)
//! ask of lists that people write, and of their masks.

use super::NumberList;

/// What a row asks, the list, and its mask; `None` if it must be refused.
type Row = (&'static str, &'static str, Option<&'static [u8]>);

const ROWS: [Row; 37] = [
    ("the first", "0", Some(&[1])),
    ("the second", "1", Some(&[2])),
    ("two as a range", "0-1", Some(&[3])),
    ("two by a comma", "0,1", Some(&[3])),
    ("four as a range", "0-3", Some(&[0x0f])),
    ("two and a range", "0,1,2-3", Some(&[0x0f])),
    ("the upper half of a byte", "4-7", Some(&[0xf0])),
    ("a byte", "0-7", Some(&[0xff])),
    ("two bytes", "0-15", Some(&[0xff, 0xff])),
    ("the first of the third byte", "16", Some(&[0, 0, 1])),
    (
        "a range and the first of the second byte",
        "0-2,8",
        Some(&[7, 1]),
    ),
    (
        "two ranges beside each other",
        "8-15,16-23",
        Some(&[0, 0xff, 0xff]),
    ),
    (
        "two ranges with a gap",
        "0-3,32-33",
        Some(&[0x0f, 0, 0, 0, 3]),
    ),
    (
        "ranges out of order",
        "128-130,1",
        Some(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]),
    ),
    ("one that stands twice", "1,2,1-2", Some(&[6])),
    ("three with a range at the end", "1,3,5-7", Some(&[0xea])),
    ("a range of one", "3-3", Some(&[8])),
    // These three the others take, since they skip what is empty or blank. The kernel writes neither, and a comma too
    // many may be a number too few.
    ("commas around", ",0,1,", None),
    ("blanks behind commas", "1, 2, 1-2", None),
    ("blanks everywhere", "  , 1  , 3 , 5-7,  ", None),
    // Nothing is no limit to runc and flux-core. Here the option is left out for that.
    ("nothing", "", None),
    ("a comma alone", ",", None),
    ("a blank alone", " ", None),
    ("a hyphen alone", "-", None),
    ("a range without an end", "1-", None),
    ("a range without a start", "-3", None),
    ("a range that runs backwards", "54-53", None),
    ("a range that runs backwards, beside one", "0-3,54-53", None),
    ("blanks in a range", "1 - 2", None),
    ("a letter", "x", None),
    ("a letter beside a number", "0,x", None),
    // The others' last number is 65,536; no kernel has more than 8,192 cores.
    ("one behind the last of the kernel's", "8192", None),
    ("the last of runc's", "65536", None),
    ("the first, and the last of runc's", "0,65536", None),
    ("one behind the last of runc's", "65537", None),
    (
        "a range that ends behind the last of runc's",
        "0-65537",
        None,
    ),
    (
        "a range of more numbers than a mask can have",
        "0-4294967295",
        None,
    ),
];

#[test]
fn lists_have_the_masks_that_other_programs_make() {
    let mut differences = Vec::new();
    for (name, text, mask) in ROWS {
        let found = text.parse().map(|list: NumberList| list.mask()).ok();
        if found.as_deref() != mask {
            differences.push(format!("{name}: {text:?}: {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The last number of a mask that fits into the kernel's, and numbers far behind the first.
#[test]
fn large_numbers_are_in_their_place_of_the_mask() {
    for (text, numbers) in [
        ("1023", vec![1023]),
        ("1024", vec![1024]),
        ("4096-4098", vec![4096, 4097, 4098]),
        ("8191", vec![8191]),
        ("0-3,127-129", vec![0, 1, 2, 3, 127, 128, 129]),
    ] {
        let mask = text.parse::<NumberList>().unwrap().mask();
        let is_set = |number: &usize| mask[number / 8] & 1 << (number % 8) != 0;
        let set: Vec<usize> = (0..mask.len() * 8).filter(is_set).collect();
        assert_eq!(set, numbers, "{text}");
    }
}
