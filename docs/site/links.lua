-- SPDX-License-Identifier: BSD-3-Clause
-- Pages refer to each other by the names that they have in the source tree; here they are HTML, and a man
-- page that a text names becomes a link. The metadata `root` leads from the page to the site's top.
local root, others = "", ""

function Meta(meta)
    root = pandoc.utils.stringify(meta.root or "")
    others = pandoc.utils.stringify(meta.others or "")
end

-- The page that serves this name: its own, or one that serves several functions. nil: another project's.
local function serving(name)
    local file = io.open("man/" .. name)
    if file then
        file:close()
        return name
    end
    file = io.open(others .. "/" .. name)
    local line = file and file:read("l")
    if file then
        file:close()
    end
    return line and line:match("^%.so man%d/(.*)$")
end

function Link(link)
    local name = link.target:match("^([%w_.-]+%.%d)%.html$")
    if name then
        local page = serving(name)
        if not page then
            return link.content
        end
        link.target = page .. ".html"
        return link
    end
    link.target = link.target:gsub("%.md$", ".html"):gsub("%.md#", ".html#")
    return link
end

function Code(code)
    local page = code.text:match("^man/([%w_.-]+%.%d)$")
    if page then
        return pandoc.Link(code, root .. "man/" .. page .. ".html")
    end
end

return { { Meta = Meta }, { Link = Link, Code = Code } }
