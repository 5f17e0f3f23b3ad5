/* Why a record was refused: REJECT(ID, "word in header, event and metric", "what it means"). */
REJECT(EMPTY, "empty", "the record has no value")
REJECT(TOO_LARGE, "too_large", "the record, or a part of it, is larger than allowed")
REJECT(CONTENT_TYPE, "content_type",
       "the content-type or content-encoding header names something else than JSON or MessagePack")
REJECT(NOT_JSON, "not_json", "the value is not JSON")
REJECT(NOT_MSGPACK, "not_msgpack", "the value is not MessagePack, or holds a type that JSON lacks")
REJECT(TOO_DEEP, "too_deep", "arrays and objects are nested too deeply")
REJECT(DUPLICATE_KEY, "duplicate_key", "a key appears twice in one object")
REJECT(BAD_NUMBER, "bad_number", "a number is beyond what every JSON reader keeps exactly")
REJECT(BAD_TEXT, "bad_text", "a text holds U+0000, a lone surrogate or bad UTF-8")
REJECT(UNKNOWN_FIELD, "unknown_field", "a field that no version knows")
REJECT(NOT_SUPPORTED, "not_supported", "a field or value that this version does not honour")
REJECT(MISSING_FIELD, "missing_field", "a required field is absent")
REJECT(WRONG_TYPE, "wrong_type", "a field holds another kind of value")
REJECT(OUT_OF_RANGE, "out_of_range",
       "a number or text is outside its limits, or a word is none of those allowed")
REJECT(BAD_IDENTIFIER, "bad_identifier",
       "an identifier is too long or uses other characters than A-Z a-z 0-9 _ . : -")
REJECT(BAD_TIME, "bad_time", "a time is not RFC 3339 with its offset")
REJECT(TENANT, "tenant_not_allowed", "the topic belongs to another tenant")
