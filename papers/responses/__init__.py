"""[RESP], PAC-Private Responses: answers of one secret model; a section on the page of [DESIGN]."""

from papers.responses.transcripts import SECTION as SECTION
