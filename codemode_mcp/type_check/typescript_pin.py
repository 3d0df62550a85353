"""The pinned compiler of TypeScript: one executable for each platform, and the declarations of the language."""

from __future__ import annotations

from typing import Final

VERSION: Final = "7.0.2"

INTEGRITY: Final[dict[str, str]] = {
    "linux-x64": "EYdf2cNg7rgCWJnxCdJ+F3V39O8ihb37eHAu1LK8oAFizgTQbPOK7zHHXbPt8rX24COqODXeI3sIf0fCXG7H/A==",
    "linux-arm64": "Qh4eU4/y3yDjnfjjyPYihMj5/ODIlmt+Bzu17OI+fiSRDW57QmU5SiN63exPRNJPKUzcc1INa1NXdrJ+MqHjUQ==",
    "darwin-x64": "SZ9xZInqApNlNGc9s0W1VSsktYSOe9cFqNOIqmN1Gs8SmkjKZYFt017G4VwPxASInODuAdbTW7sXiFUf893RgA==",
    "darwin-arm64": "gowzar9MwS/aRWp6f3a4KUqzRjAZjOsmGNCM6LcTgXum+dBfgsBVMN+AgvOCCbguXyick6LJhpBszxMebJ8syA==",
    "win32-x64": "0BQ3HkAHHlKLSp1qRvf3SUhGpGsDuhB/jgFw75guyqbxJqEaS0Cw/VFO8i2nHglJUzQCRtMMR/IBAKE3ETMC4g==",
    "win32-arm64": "Gyl1Vy6OsWesLzmq+EP0Fb7b4Nid5232AvcA2SFcdYreldpNtYFFofPjnt62y9hQy7VTaZp65ICJjuAQRaVcIQ==",
}
"""SHA-512 of the package of each platform, as npm publishes it."""

EXECUTABLE_SHA256: Final[dict[str, str]] = {
    "linux-x64": "4f2de678286401759b3fb4475bafe35b8f32b4b3a07d92642bbf37eadc9b34a4",
    "linux-arm64": "f86e8070c267b12d6c119bf567cb82d8b245e9d93da1864bc7c603cea10a8b2f",
    "darwin-x64": "76e4987d060ef8207875a53a73619ce665ff16fb2800c0d57a452e21c829bd7b",
    "darwin-arm64": "a82f731365ad69d5c4c15f5e18fba4584bf3b7b839960172a76c3462b5114bf2",
    "win32-x64": "f9ecfbdc93753d2c972d66a8d0d75f5bd737fd4a5f88b422d9091ea282bcb2c7",
    "win32-arm64": "2ec832b3d17ce25676fe92b3810ecc0a7580ffb9287d4972bc9a5acc4da2aa50",
}
"""SHA-256 of the executable in each package, by which a cached copy is checked."""

LIBRARY_SHA256: Final = "419e1572f11bca2d04251d834b86e72d80b47f732b1cde5c52f0adfc7567195d"
"""SHA-256 of the file that `compiler.library_file` makes of the declarations. It is the same on all platforms."""
