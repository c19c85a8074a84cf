#pragma once
// Field tables of data sources: the fields that a job text may set.

#include <coracle/framework/ir/fields.h>
#include <coracle/train/data/data_source.h>

namespace coracle::inline internal {

Fields<DigitsOptions> FieldsOf(const DigitsOptions&);
Fields<IdxOptions> FieldsOf(const IdxOptions&);
Fields<CsvOptions> FieldsOf(const CsvOptions&);
Fields<CsvColumn> FieldsOf(const CsvColumn&);
MemberType TypeOfDelimiter();  // one character, neither a quote nor a line end
Fields<NpzOptions> FieldsOf(const NpzOptions&);
Fields<TextOptions> FieldsOf(const TextOptions&);
Fields<DatumOptions> LmdbFields();
Fields<DatumOptions> LevelDbFields();
Fields<PictureOptions> FieldsOf(const PictureOptions&);
Fields<TransformOptions> FieldsOf(const TransformOptions&);
Fields<MixupOptions> FieldsOf(const MixupOptions&);
// The words RGB and BGR; `type` names the enum in a schema.
OneOf ChannelOrders(const std::string& type);

}  // namespace coracle::inline internal
