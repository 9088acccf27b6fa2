use proptest::prelude::*;

use super::*;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

#[test]
fn white_space_around_a_quantity_of_the_api_has_no_meaning() {
    for (text, expected) in [
        (" 1Gi ", Some("1Gi")),
        ("\t500m\n", Some("500m")),
        ("1 Gi", None),
        (" ", None),
    ] {
        let read = Quantity::from_wire(&Wire(text.to_owned())).ok();
        let read = read.map(|it| it.to_string());
        assert_eq!(read.as_deref(), expected, "{text:?}");
    }
}

#[test]
fn three_times_128_mi_are_384_mi() {
    let sum: Quantity = [quantity("128Mi"); 3].into_iter().sum();
    assert_eq!(sum.to_string(), "384Mi");
}

#[test]
fn amounts_beyond_the_range_saturate_instead_of_wrapping() {
    assert_eq!(quantity("7Ei").milli_value(), i64::MAX);
    assert_eq!(quantity("-100E").value(), i64::MIN);
    assert_eq!(quantity("1e99") + quantity("1e99"), quantity("1e99"));
}

#[test]
fn more_digits_than_fit_round_up_by_one_nano_unit() {
    let text = format!("1.{}1", "0".repeat(60));
    assert_eq!(quantity(&text).nano(), NANO + 1);
    assert_eq!(quantity(&format!("{text}Ki")).nano(), 1024 * NANO + 1);
}

proptest! {
    #[test]
    fn reading_what_was_printed_gives_the_same_amount(nano in -(1_i128 << 100)..(1_i128 << 100)) {
        for format in [Format::DecimalSi, Format::DecimalExponent] {
            let it = Quantity::from_nano(nano, format);
            prop_assert_eq!(quantity(&it.to_string()), it);
        }
    }

    #[test]
    fn binary_notation_survives_printing(units in any::<i64>()) {
        prop_assume!(units != i64::MIN);
        let it = Quantity::units(units, Format::BinarySi);
        prop_assert_eq!(quantity(&it.to_string()), it);
    }

    #[test]
    fn rounding_is_away_from_zero(nano in -(1_i128 << 82)..(1_i128 << 82)) {
        let it = Quantity::from_nano(nano, Format::DecimalSi);
        let milli = i128::from(it.milli_value()) * MILLI_IN_NANO;
        prop_assert!(milli.abs() >= nano.abs() && milli.abs() - nano.abs() < MILLI_IN_NANO);
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,24}") {
        let _ = text.parse::<Quantity>();
    }
}
