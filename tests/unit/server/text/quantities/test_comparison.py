import pytest

from seqserve_server.text.quantities.comparison import differences
from seqserve_server.text.quantities.reading import has_digit

SAME = {
    ("en", "de"): [
        ("It costs $1,250.50.", "Es kostet 1.250,50 $."),
        ("He owes me €1,250.", "Er schuldet mir 1250 €."),
        ("about 186,000 people", "etwa 186 000 Menschen"),
        ("1,500 people", "1’500 Menschen"),
        ("12.5 kilometers", "12,5 Kilometer"),
        ("4.847 km", "4,847 km"),
        ("3 dogs", "drei Hunde"),
        ("25 years old", "fünfundzwanzig Jahre alt"),
        ("a dozen eggs, 12 cups", "12 Eier, ein Dutzend Tassen"),
        ("1 book", "ein Buch"),
        ("one egg at 7:00", "1 Ei um 7 Uhr"),
        ("200 dollars", "zweihundert Dollar"),
        ("1984 was a year", "neunzehnhundertvierundachtzig war ein Jahr"),
        ("5 million people", "fünf Millionen Menschen"),
        ("2.5 million people", "2,5 Millionen Menschen"),
        ("2 billion dollars", "2 Milliarden Dollar"),
        ("20 July 2019", "20. Juli 2019"),
        ("July 20th, 2019", "20.07.2019"),
        ("07/20/2019", "20. Juli 2019"),
        ("2019-07-20", "20.7.2019"),
        ("on May 5th", "am 5. Mai"),
        ("since the 1990s", "seit den 90er Jahren"),
        ("in the 1980s", "in den Achtzigern"),
        ("in the 19th century", "im 19. Jahrhundert"),
        ("World War II in 1939", "der 2. Weltkrieg 1939"),
        ("at 3:30 p.m.", "um 15:30 Uhr"),
        ("at 3:30 p.m.", "um 15.30 Uhr"),
        ("at 2:30", "um halb drei"),
        ("at 2:30", "um halb 3"),
        ("from 2:30 to 5:00", "von halb drei bis fünf"),
        ("at 6:45", "um Viertel vor sieben"),
        ("at 10:30", "um zehn Uhr dreißig"),
        ("9 am to 6 pm", "von 9 bis 18 Uhr"),
        ("12 a.m. and 12 p.m.", "0 Uhr und 12 Uhr"),
        ("at 4 p.m.", "um sechzehn Uhr"),
        ("for 30 minutes", "eine halbe Stunde"),
        ("50% of 80", "die Hälfte von 80"),
        ("85 percent", "85 %"),
        ("room A4, floor 2", "Zimmer A4, zweiter Stock"),
        ("the G20 summit", "der G-20-Gipfel"),
        ("flight KX7-4492", "Flug KX7 4492"),
        ("version 3.5.1", "Version 3.5.1"),
        ("Call 403-6578.", "Rufen Sie 4036578 an."),
        ("IBAN DE89 3704 0044", "IBAN DE89 3704 0044"),
        ("won 5-2", "gewann 5:2"),
        ("a 10-year-old", "ein Zehnjähriger"),
        ("We sell 3Ds and MP3s.", "Wir verkaufen 3D und MP3."),
        ("CO2 in 2020", "CO₂ im Jahr 2020"),
        ("1,800 billionaires", "1800 Milliardäre"),
        ("I ran 3 kilometers in 36 minutes.", "Ich lief in 36 Minuten 3 Kilometer."),
        ("order 1215472 of September 21", "Bestellung 1215472 vom 21. September"),
        ("€17, from USD 61,502.23 it is free", "17 €, ab 61.502,23 $ kostenlos"),
        ("Balance: -$20.00", "Saldo: -20,00 $"),
        ("In 2024 I paid $5.", "Ich habe 2024 5 $ bezahlt."),
        ("It rose by 2.5 degrees in 10 years.", "Es stieg in 10 Jahren um 2,5 Grad."),
        ("GBP 20 or 30 euros", "20 Pfund Sterling oder 30 €"),
        ("a 5 pound bag for $7 million", "ein Beutel von 5 Pfund für 7 Millionen US-Dollar"),
        ("It grew by 0.3 percent.", "Es wuchs um null Komma drei Prozent."),
        ("1,500 cows", "anderthalbtausend Kühe"),
        ("2.5 hours", "zweieinhalb Stunden"),
        ("in the 1700s and 1800s", "im 18. und 19. Jahrhundert"),
        ("90 miles an hour", "140 Kilometer in der Stunde"),
        ("93 million miles", "150 Millionen Kilometer"),
        ("70 mph", "hundertzehn Kilometer in der Stunde"),
        ("98.6 °F", "37 °C"),
        ("150 centimeters tall", "1,50 m groß"),
        (".08 percent", "0,8 Promille"),
        ("on the 31st", "am einunddreißigsten"),
        ("30 pounds", "14 Kilo"),
        ("in the early '90s", "Anfang der 90er"),
        ("an X200 at 499 and an X300 649", "ein X200 für 499 und ein X300 649 Euro"),
        ("It lost 20,000 men in 3 days.", "Es verlor in 3 Tagen 20.000 Männer."),
        ("400 mg every 6 hours", "alle 6 Stunden 400 mg"),
        ("closed on May 1 and October 3", "geschlossen am 1.5. und 3.10."),
        ("6 years, and now it is 6%", "sechs Jahre, und nun sind es 6 %"),
        ("in 90 minutes", "in 1,5 Stunden"),
        ("at half past 7", "um halb 8"),
        ("Children under 16 may not go.", "Kinder unter 16 gehen nicht."),
        ("20 chairs by 3 p.m. or 3:20 p.m.", "bis 15 Uhr 20 Stühle oder 15 Uhr 20"),
        ("from 6 to 8 p.m.", "von 18 bis 20 Uhr"),
        ("only $13.20 an hour", "nur 13,20 $ pro Stunde"),
        ("6 euros instead of 9", "6 statt 9 Euro"),
        ("at quarter to 5", "um 4:45 Uhr"),
        ("at quarter past 8", "um Viertel nach acht"),
        ("2 1/2 hours, 1½ cups", "2,5 Stunden, anderthalb Tassen"),
        ("2 and a half hours", "zweieinhalb Stunden"),
        ("It was -5 °C.", "Es waren 5 Grad unter Null."),
        ("minus 5 degrees, rooms 3 -5", "-5 Grad, Zimmer 3 bis 5"),
        ("120 kilometers an hour", "120 Stundenkilometer"),
        ("a 20% discount for 2 nights", "20-prozentiger Rabatt für 2 Nächte"),
    ],
    ("en", "fr"): [
        ("July 20th, 2019", "le 20 juillet 2019"),
        ("on May 1st", "le 1er mai"),
        ("£6, ¥7, CHF 9, 5%", "6 livres sterling, 7 yens, 9 francs suisses, 5 pour cent"),
        ("$12,500", "12\u202f500 dollars"),
        ("97 percent", "quatre-vingt-dix-sept pour cent"),
        ("71 cats", "soixante et onze chats"),
        ("at 3:30", "à 15h30"),
        ("the 19th century", "le XIXe siècle"),
        ("the 1920s", "les années 20"),
        ("the 4th floor", "le quatrième étage"),
        ("50 miles", "50 miles"),
        ("95 cents", "95 centimes"),
        ("99.9% effective", "efficace à quatre-vingt-dix-neuf virgule neuf pour cent"),
        ("10 miles away", "à seize kilomètres"),
        ("2.5 years", "deux ans et demi"),
        ("at 6:45", "à sept heures moins le quart"),
        ("at 12:30", "à midi et demi"),
        ("12 eggs", "une douzaine d'œufs"),
        ("the 31st", "le trente et unième"),
        ("in the 1800s", "au XIXe siècle"),
        ("12 feet", "3,7 mètres"),
        ("50 degrees Fahrenheit", "10 degrés Celsius"),
    ],
    ("en", "es"): [
        ("22 cats", "veintidós gatos"),
        ("$5, £6, ¥7, €8", "5 dólares, 6 libras, 7 yenes, 8 euros"),
        ("35 cats", "treinta y cinco gatos"),
        ("500 people", "quinientas personas"),
        ("July 20, 2019", "20 de julio de 2019"),
        ("at 3:30", "a las tres y media"),
        ("the 21st century", "el siglo XXI"),
        ("1,250.5", "1.250,5"),
        ("3.5 percent", "tres coma cinco por ciento"),
        ("100 billion", "100 mil millones"),
        ("100 billion", "cien mil millones"),
        ("2.5 kilos", "dos kilos y medio"),
        ("at 6:45", "a las siete menos cuarto"),
        ("at 6:15", "a las seis y cuarto"),
        ("the 31st day", "el trigésimo primer día"),
        ("the 22nd", "el vigésimo segundo"),
        ("12 eggs", "una docena de huevos"),
        ("10 miles", "16 kilómetros"),
        ("the 1990s", "los años 90"),
        ("the 1990s", "los noventa"),
        ("June 3rd", "el tres de junio"),
    ],
    ("en", "pt"): [
        ("230 cats", "duzentos e trinta gatos"),
        ("16 cats", "dezesseis gatos"),
        ("3 March 2020", "3 de março de 2020"),
        ("3.5 percent", "três vírgula cinco por cento"),
        ("2 billion", "2 mil milhões"),
        ("2.5 kilos", "dois quilos e meio"),
        ("at 6:45", "às quinze para as sete"),
        ("at 6:30", "às seis e meia"),
        ("the 31st", "o trigésimo primeiro"),
        ("12 eggs", "uma dúzia de ovos"),
        ("10 miles", "dezesseis quilômetros"),
        ("the 1990s", "os anos 90"),
        ("$1,250.50", "US$ 1.250,50"),
        ("the 21st century", "o século XXI"),
    ],
    ("en", "it"): [
        ("22 cats", "ventidue gatti"),
        ("3,000 cats", "tremila gatti"),
        ("3 March 2020", "3 marzo 2020"),
        ("at 3:30", "alle tre e mezza"),
        ("3.5 percent", "tre virgola cinque per cento"),
        ("2.5 kilos", "due chili e mezzo"),
        ("at 6:45", "alle sette meno un quarto"),
        ("at 6:15", "alle sei e un quarto"),
        ("the 31st", "il trentunesimo"),
        ("12 eggs", "una dozzina di uova"),
        ("10 miles", "sedici chilometri"),
        ("the 1990s", "gli anni 90"),
        ("the 1990s", "gli anni novanta"),
        ("the 21st century", "il XXI secolo"),
        ("22 pounds", "dieci chili"),
    ],
    ("en", "nl"): [
        ("25 cats", "vijfentwintig katten"),
        ("at 3:30", "om half vier"),
        ("3 March 2020", "3 maart 2020"),
        ("3.5 percent", "drie komma vijf procent"),
        ("2.5 kilos", "tweeënhalve kilo"),
        ("at 6:45", "om kwart voor zeven"),
        ("at 6:15", "om kwart over zes"),
        ("the 31st", "de eenendertigste"),
        ("12 eggs", "een dozijn eieren"),
        ("10 miles", "zestien kilometer"),
        ("the 1990s", "de jaren 90"),
        ("1.5 hours", "anderhalf uur"),
        ("$1,250.50", "$ 1.250,50"),
    ],
    ("en", "pl"): [
        ("25 cats", "dwadzieścia pięć kotów"),
        ("$5, £6, ¥7, PLN 8", "5 dolarów, 6 funtów, 7 jenów, 8 złotych"),
        ("It grew by 5% to CHF 9.", "Wzrosło o 5 proc. do 9 franków."),
        ("3 March 2020", "3 marca 2020"),
        ("in July 2019", "w lipcu lub lipiec 2019"),
        ("1,250.5", "1 250,5"),
        ("3.5 percent", "trzy przecinek pięć procent"),
        ("2.5 kilos", "dwa i pół kilo"),
        ("at 6:30", "o wpół do siódmej"),
        ("at 6:45", "za kwadrans siódma"),
        ("the 31st", "trzydziesty pierwszy"),
        ("12 eggs", "tuzin jaj"),
        ("10 miles", "szesnaście kilometrów"),
        ("the 1990s", "lata 90."),
        ("the 1990s", "lata dziewięćdziesiąte"),
        ("1.5 hours", "półtorej godziny"),
        ("the 21st century", "XXI wiek"),
    ],
    ("en", "ko"): [
        ("20,000 yen", "2만 엔"),
        ("at 2:30", "2시 30분에"),
        ("in March 2003", "2003년 3월에"),
        ("3 dogs", "개 세 마리"),
        ("I slept 8 hours.", "나는 8시간을 잤다."),
        ("at 3:30 p.m.", "오후 3시 반에"),
        ("on May 5, 1990", "1990년 5월 5일에"),
        ("£6 and €7, 20 percent", "6파운드와 7유로, 20%"),
        ("25 students for 12 months", "스물다섯 명의 학생이 열두 달"),
        ("8 billion people in the 1980s", "80년대에 80억 명"),
        ("5 km and -5 degrees", "5km와 영하 5도"),
        ("50 million won at km 5", "km 5에서 5천만 원"),
    ],
    ("de", "fr"): [("um 14.30 Uhr", "à 14h30")],
    ("en", "ar"): [("In 2019 there were 450.", "في ٢٠١٩ كان هناك ٤٥٠.")],
    ("ja", "en"): [("２０１９年に３７人", "37 people in 2019")],
}


@pytest.mark.parametrize(
    ("languages", "source", "target"),
    [(pair, *texts) for pair, each in SAME.items() for texts in each],
)
def test_other_forms_are_no_difference(
    languages: tuple[str, str], source: str, target: str
) -> None:
    one, other = languages
    assert differences(source, target, one, other) == []
    if has_digit(target):
        assert differences(target, source, other, one) == []


def shown(source: str, target: str, one: str = "en", other: str = "de") -> list[tuple[str, str]]:
    return [
        (source[a.begin : a.end] if a else "", target[b.begin : b.end] if b else "")
        for a, b in differences(source, target, one, other)
    ]


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        (
            "Your order 85642 was shipped on 20 July 2019.",
            "Ihre Bestellung 20. Juli 2019 wurde am 2019 verschickt.",
            [("85642", "2019")],
        ),
        ("from 9 am to 6 pm", "von 21 Uhr bis 18 Uhr", [("9", "21")]),
        ("until 12 AM", "bis 12 Uhr", [("12", "12")]),
        ("for €5.643", "für 5.643 €", [("5.643", "5.643")]),
        ("Two dogs and 3 cats", "Zwei Hunde und Katzen", [("3", "")]),
        ("In 2019 it rained.", "2019 regnete es 14 Tage.", [("", "14")]),
        ("room M11", "Zimmer M1", [("M11", "M1")]),
        ("room 1F", "Zimmer 1", [("1F", "1")]),
        ("on 20 July", "am 20. Juni", [("July", "Juni")]),
        ("in 1916", "im Jahr 19916", [("1916", "19916")]),
        ("version 3.5.1", "Version 3.5", [("1", "")]),
        ("Between 7 and 9 the door is open.", "Von 9 bis 7 Uhr.", [("7", "9"), ("9", "7")]),
        ("They lost 3 to 0.", "Sie verloren 0 zu 3.", [("3", "0"), ("0", "3")]),
        ("bus 8M", "Bus 8Mund", [("", "8Mund")]),
        ("5% of 20 kg", "20 % von 5 kg", [("5", "20"), ("20", "5")]),
        ("12 eggs, 12 cups", "12 Eier und Tassen", [("12", "")]),
        ("15 boys and 28 girls", "28 Jungen, 15 Mädchen", [("15", "28"), ("28", "15")]),
        ("90 miles", "200 Kilometer", [("90", "200")]),
        ("100 km", "105 km", [("100", "105")]),
        ("1,600 meters", "1,7 Kilometer", [("1,600", "1,7")]),
        ("0.3 percent", "null Komma vier Prozent", [("0.3", "")]),
        ("2 or 3 years", "23 Jahre", [("2", ""), ("3", ""), ("", "23")]),
        ("at 3:30", "um halb drei", [("3:30", "")]),
        ("at 3:00 p.m.", "um halb drei", [("3:00", "")]),
        ("at 8:00", "um acht Uhr dreißig", [("8:00", "")]),
        ("30 kilometers", "eine halbe Stunde", [("30", "")]),
        ("A year has 12 months.", "Ein Jahr hat Monate.", [("12", "")]),
        ("100 °C or 212 °F", "°C oder 212 °F", [("100", "")]),
        ("to 80% in 30 minutes", "in 30 Minuten auf 80 Minuten", [("80%", "80 Minuten")]),
        ("$25 plus 2.9% of it", "25 $ plus 2,9 $", [("2.9%", "2,9 $")]),
        ("1 hour and 20 minutes", "1 Minute und 20 Minuten", [("1 hour", "1 Minute")]),
        ("from -5 °C to -12 °C", "von 5 °C auf 12 °C", [("-5 °C", "5 °C"), ("-12 °C", "12 °C")]),
        ("at half past 7", "um 7", [("7", "7")]),
        ("1½ cups", "1 Tasse", [("1½", "1")]),
        ("52 mph at 2 am", "52 Uhr um 2 Uhr", [("52 mph", "52 Uhr")]),
        ("Balance: -$20.00", "Saldo: 20,00 $", [("-$20.00", "20,00 $")]),
        ("4, 8, 15, 16", "4, 8.15. 16", [("8", ""), ("15", ""), ("", "8.15")]),
        ("the 1st of 10 parts", "1.10 Teile", [("1", ""), ("10", ""), ("", "1.10")]),
        ("from 2 hours to 3 hours", "von 3 Stunden auf 2 Stunden", [("2", "3"), ("3", "2")]),
        ("12 May 2024 and $5.50", "12. Mai 2024 $ und 5,50 $", [("2024", "2024 $")]),
        ("in 2024 for $5", "für $5 im Jahr $2024", [("2024", "$2024")]),
        ("It costs €5.", "Es kostet 5.", [("€5", "5")]),
        (
            "It costs EUR 5 million.",
            "Es kostet 5 Millionen Dollar.",
            [("EUR 5 million", "5 Millionen")],
        ),
        ("It costs 5 EUR or 7.", "Es kostet 5 oder 7.", [("5 EUR", "5")]),
        ("20 Swiss francs", "20 Zloty", [("20 Swiss", "20 Zloty")]),
        ("It grew by 5 %.", "Es wuchs um 5.", [("5 %", "5")]),
        ("5 km in 20 minutes", "5 Meter in 20 Minuten", [("5 km", "5 Meter")]),
        ("5 km in 20 minutes", "Um 5 in 20 Minuten", [("5 km", "5")]),
        ("The PIN is 0042.", "Die PIN ist 042.", [("0042", "")]),
        ("from gate 77 at 8:20", "um 77 Uhr von Tor 8:20", [("77", "77 Uhr")]),
    ],
)
def test_what_differs_is_found_in_both_texts(
    source: str, target: str, found: list[tuple[str, str]]
) -> None:
    assert shown(source, target) == found


def test_numbers_of_korean_are_missed() -> None:
    assert shown("12 chairs, 3 tables", "의자와 12개", "en", "ko") == [("3", "")]
    assert shown("5% of them", "그들의 5", "en", "ko") == [("5%", "5")]
    assert shown("15,000원", "€15,000", "ko", "en") == [("15,000원", "€15,000")]
    # Its order is another one.
    assert shown("3 of 5 people", "5명 중 3명", "en", "ko") == []


def test_words_of_an_unknown_language_are_not_missed() -> None:
    assert shown("3 cats", "kolme kissaa", "en", "fi") == []
    assert shown("order 85642", "tilaus", "en", "fi") == [("85642", "")]
    assert shown("room KX7", "huone", "en", "fi") == [("KX7", "")]


def test_marks_of_an_unknown_language_may_mean_either() -> None:
    for number in ("1250", "1.25", "1,25"):
        assert shown(number, "1.250", "", "") == []
    assert shown("1251", "1.250", "", "") == [("1251", "")]


def test_numbers_of_any_length_are_compared() -> None:
    for length in (17, 24, 25, 5000):
        number = "9" * length
        assert shown(f"{number} millions İ", f"{number} Millionen", "en", "de") == []
        assert shown(f"{number} millions", "viele Millionen", "en", "de") == [(number, "")]
        assert shown(number, "", "en", "fi") == [(number, "")]


def test_texts_of_many_numbers_take_no_time_for_each_pair() -> None:
    text = "1, 2. 3: " * 4000
    assert differences(text, text + "7", "en", "de")[0].target is not None
