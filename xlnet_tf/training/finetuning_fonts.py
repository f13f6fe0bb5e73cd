"""Which installed fonts have the letters of the names in a picture."""

import unicodedata

# Looked at first, for they have most of the letters of their scripts.
_WELL_KNOWN = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Noto Sans SC",
    "Noto Sans JP",
    "Noto Sans KR",
    "Source Han Sans SC",
    "Source Han Sans",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "IPAexGothic",
    "TakaoPGothic",
    "NanumGothic",
    "UnDotum",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Arial Unicode MS",
    "Microsoft YaHei",
    "SimHei",
    "Yu Gothic",
    "MS Gothic",
    "Malgun Gothic",
    "Unifont",
)
# Their glyphs are boxes, or stand for other letters than they say.
_NO_LETTERS = ("Last Resort", "STIXNonUnicode", "STIXSize", "cm", "Emoji")
# Control and format characters, and blanks, have no glyph of their own.
_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")


def families_for(text):
    """Font families that together have a glyph for each letter of a text.

    Args:
        text: str.

    Returns:
        list of str, Matplotlib's own family first and as few others as the
        text needs; None if no installed font has one of the letters.
    """
    missing = {
        ord(letter)
        for letter in text
        if unicodedata.category(letter) not in _INVISIBLE
    }
    families = []
    for family in (_own_family(), *_others()):
        has = missing & _letters(family)
        if has or not families:
            families.append(family)
            missing -= has
        if not missing:
            return families
    return None


def _own_family():
    from matplotlib import font_manager

    file = font_manager.findfont(font_manager.FontProperties())
    return font_manager.get_font(file).family_name


def _others():
    """Families that are installed, those that are well known first."""
    from matplotlib import font_manager

    installed = {
        font.name
        for font in font_manager.fontManager.ttflist
        if not font.name.startswith(_NO_LETTERS)
        and not font.name.endswith(_NO_LETTERS)
    }
    known = [family for family in _WELL_KNOWN if family in installed]
    return known + sorted(installed - set(known))


def _letters(family):
    """set of int, code points that the family's usual font has glyphs for."""
    from matplotlib import font_manager

    try:
        file = font_manager.findfont(
            font_manager.FontProperties(family=[family]),
            fallback_to_default=False,
        )
        return set(font_manager.get_font(file).get_charmap())
    except (ValueError, OSError, RuntimeError):  # removed, or damaged
        return set()
