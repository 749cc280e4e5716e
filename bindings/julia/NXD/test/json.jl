# As much of JSON as api.json and layout.json hold.

json(text) = first(json_value(text, json_skip(text, 1)))

json_skip(s, i) = (while i <= ncodeunits(s) && isspace(s[i]); i = nextind(s, i); end; i)

function json_value(s, i)
    c = s[i]
    c == '{' && return json_items(s, i, '}', Dict{String,Any}(), json_pair)
    c == '[' && return json_items(s, i, ']', Any[], json_value)
    c == '"' && return json_string(s, i)
    for (word, value) in ("true" => true, "false" => false, "null" => nothing)
        startswith(SubString(s, i), word) && return (value, i + length(word))
    end
    m = match(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", s, i)
    (parse(m.captures == [nothing, nothing] ? Int : Float64, m.match), i + ncodeunits(m.match))
end

function json_pair(s, i)
    key, i = json_string(s, i)
    value, i = json_value(s, json_skip(s, json_skip(s, i) + 1))
    (key => value, i)
end

function json_items(s, i, close, items, item)
    i = json_skip(s, i + 1)
    while s[i] != close
        found, i = item(s, i)
        push!(items, found)
        i = json_skip(s, i)
        s[i] == ',' && (i = json_skip(s, i + 1))
    end
    (items, i + 1)
end

function json_string(s, i)
    out, i = IOBuffer(), i + 1
    while s[i] != '"'
        if s[i] == '\\'
            i += 1
            if s[i] == 'u'
                print(out, Char(parse(UInt16, s[i + 1:i + 4]; base = 16)))
                i += 4
            else
                print(out, s[i] == 'n' ? '\n' : s[i])
            end
        else
            print(out, s[i])
        end
        i = nextind(s, i)
    end
    (String(take!(out)), i + 1)
end
