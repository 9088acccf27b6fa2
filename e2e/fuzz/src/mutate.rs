//! Changes of inputs.

use crate::random::Random;

/// Texts that often lie at a limit of a parser.
const ODD: [&str; 30] = [
    "",
    "0",
    "-1",
    "+",
    "-",
    ".",
    "1e400",
    "1e-400",
    "127",
    "128",
    "255",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "NaN",
    "inf",
    "\u{0}",
    "\u{feff}",
    "\u{85}",
    "é",
    "\u{2028}",
    "𝄞",
];

/// Changes an input in one to eight ways. `words` are texts of the format, and `other` is another
/// input from which pieces are taken.
pub fn mutate(
    input: &mut Vec<u8>,
    other: &[u8],
    words: &[&str],
    longest: usize,
    random: &mut Random,
) {
    for _ in 0..=random.below(8) {
        change(input, other, words, random);
        input.truncate(longest);
        if random.once_in(2) {
            break;
        }
    }
}

fn change(input: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = at + random.below((input.len() - at).min(16) + 1);
    match random.below(12) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            let byte = random.bits().to_le_bytes()[0];
            match input.get_mut(at) {
                Some(known) => *known = byte,
                None => input.push(byte),
            }
        }
        2 => drop(input.drain(at..end)),
        // A piece twice, or many times.
        3 | 4 => {
            let times = if random.once_in(4) {
                random.below(200)
            } else {
                1
            };
            let piece = input[at..end].repeat(times);
            drop(input.splice(at..at, piece));
        }
        5 => {
            let from = random.below(other.len() + 1);
            let to = from + random.below(other.len() - from + 1);
            drop(input.splice(at..end, other[from..to].iter().copied()));
        }
        6 => input.truncate(at),
        7 => {
            let digit = input.iter().skip(at).position(u8::is_ascii_digit);
            if let Some(digit) = digit.and_then(|digit| input.get_mut(at + digit)) {
                *digit = b'0' + random.bits().to_le_bytes()[0] % 10;
            }
        }
        8 => drop(input.splice(at..end, random.one_of(&ODD).bytes())),
        _ if words.is_empty() => drop(input.splice(at..at, random.one_of(&ODD).bytes())),
        // A word in the place of something, or in between.
        9 => drop(input.splice(at..end, random.one_of(words).bytes())),
        _ => drop(input.splice(at..at, random.one_of(words).bytes())),
    }
}

/// Makes a sentence of words and odd texts.
pub fn sentence(words: &[&str], random: &mut Random) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..=random.below(12) {
        let from = if words.is_empty() || random.once_in(6) {
            &ODD[..]
        } else {
            words
        };
        text.extend(random.one_of(from).bytes());
    }
    text
}
