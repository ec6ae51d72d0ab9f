import io
import zipfile
from datetime import date

import pytest
from docx import Document
from openpyxl import Workbook, load_workbook
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.worksheet.table import Table
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches
from tests.foreign.capitals import in_capitals, rewritten, same

from seqserve.documents.formats import Format

AREA = (Inches(1), Inches(1), Inches(4), Inches(3))


def presentation() -> bytes:
    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "A report"
    frame = slide.placeholders[1].text_frame
    for number, text in enumerate(["a ", "red car", " came"]):
        run = frame.paragraphs[0].add_run()
        run.text, run.font.bold = text, number == 1 or None
    link = frame.add_paragraph().add_run()
    link.text, link.hyperlink.address = "see the page", "https://x.org"
    table = slide.shapes.add_table(1, 2, *AREA).table
    table.cell(0, 0).text, table.cell(0, 1).text = "price", "12.50"
    box = slide.shapes.add_group_shape().shapes.add_textbox(*AREA)
    box.text_frame.text = "in a group"
    slide.notes_slide.notes_text_frame.text = "say hello & smile"
    data = CategoryChartData()
    data.categories = ["east", "west"]
    data.add_series("sales", (19.2, 21.4))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *AREA, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "sales of it"
    file = io.BytesIO()
    deck.save(file)
    return file.getvalue()


def workbook() -> bytes:
    book = Workbook()
    sheet = book.active
    sheet.title = "first sheet"
    for row in (["region", "sum"], ["east <side>", 10], ["west & side", 20]):
        sheet.append(row)
    sheet["D1"], sheet["D2"], sheet["D3"] = "a note", '=A2&" total"', date(2026, 5, 3)
    sheet["D4"] = CellRichText("a ", TextBlock(InlineFont(b=True), "red car"), " came")
    sheet["D1"].comment = Comment("please check", "ann lee")
    sheet.oddHeader.center.text = "report &[Page] of &N"
    sheet.add_table(Table(displayName="sales", ref="A1:B3"))
    chart = BarChart()
    chart.title = "sales of it"
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    sheet.add_chart(chart, "F2")
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def letter() -> bytes:
    document = Document()
    document.add_heading("a heading", 1)
    paragraph = document.add_paragraph("some ")
    paragraph.add_run("bold words").bold = True
    document.add_comment(paragraph.runs, text="is it so?", author="ann")
    document.sections[0].header.paragraphs[0].text = "at the top"
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def parts_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {each.filename: archive.read(each) for each in archive.infolist()}


@pytest.mark.parametrize(
    ("kind", "content", "changed"),
    [
        (
            Format.PPTX,
            presentation(),
            {"slides/slide1.xml", "notesSlides/notesSlide1.xml", "charts/chart"},
        ),
        (
            Format.XLSX,
            workbook(),
            {"worksheets/sheet1.xml", "comments/comment1.xml", "charts/chart"},
        ),
        (Format.DOCX, letter(), {"document.xml", "header1.xml", "comments.xml"}),
    ],
    ids=["pptx", "xlsx", "docx"],
)
def test_parts_without_text_stay_as_is(kind: Format, content: bytes, changed: set[str]) -> None:
    parts = parts_of(content)
    assert parts_of(rewritten(kind, content, same)) == parts
    others = {
        name
        for name, data in parts_of(in_capitals(kind, content).content).items()
        if data != parts[name]
    }
    assert len(others) == len(changed)
    assert all(any(each in name for each in changed) for name in others)


def test_a_presentation() -> None:
    deck = Presentation(io.BytesIO(in_capitals(Format.PPTX, presentation()).content))
    [slide] = deck.slides
    title, body, table, group, chart = slide.shapes
    assert title.text_frame.text == "A REPORT"
    first, second = body.text_frame.paragraphs
    runs = [(run.text, run.font.bold) for run in first.runs]
    assert runs == [("A ", None), ("RED CAR", True), (" CAME", None)]
    assert (second.text, second.runs[0].hyperlink.address) == ("SEE THE PAGE", "https://x.org")
    assert [cell.text for cell in table.table.rows[0].cells] == ["PRICE", "12.50"]
    assert [box.text_frame.text for box in group.shapes] == ["IN A GROUP"]
    assert slide.notes_slide.notes_text_frame.text == "SAY HELLO & SMILE"
    assert chart.chart.chart_title.text_frame.text == "SALES OF IT"
    assert [*chart.chart.plots[0].categories] == ["EAST", "WEST"]
    [series] = chart.chart.plots[0].series
    assert (series.name, [*series.values]) == ("SALES", [19.2, 21.4])


def test_a_workbook() -> None:
    content = in_capitals(Format.XLSX, workbook()).content
    book = load_workbook(io.BytesIO(content), rich_text=True)
    assert book.sheetnames == ["first sheet"]
    sheet = book.active
    # Headers of a table stay, or Excel would repair the file.
    assert [[*row] for row in sheet.iter_rows(max_col=2, max_row=3, values_only=True)] == [
        ["region", "sum"],
        ["EAST <SIDE>", 10],
        ["WEST & SIDE", 20],
    ]
    assert [column.name for column in sheet.tables["sales"].tableColumns] == ["region", "sum"]
    assert [sheet[place].value for place in ("D1", "D2")] == ["A NOTE", '=A2&" total"']
    assert sheet["D3"].value.date() == date(2026, 5, 3)
    plain, bold, rest = sheet["D4"].value
    assert (plain, bold.text, bold.font.b, rest) == ("A ", "RED CAR", True, " CAME")
    assert (sheet["D1"].comment.text, sheet["D1"].comment.author) == ("PLEASE CHECK", "ann lee")
    assert sheet.oddHeader.center.text == "REPORT &P OF &N"


def test_a_letter() -> None:
    document = Document(io.BytesIO(in_capitals(Format.DOCX, letter()).content))
    heading, paragraph = document.paragraphs
    assert heading.text == "A HEADING"
    runs = [(run.text, run.bold) for run in paragraph.runs if run.text]
    assert runs == [("SOME ", None), ("BOLD WORDS", True)]
    assert [each.text for each in document.comments] == ["IS IT SO?"]
    assert document.sections[0].header.paragraphs[0].text == "AT THE TOP"
