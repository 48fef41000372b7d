-- SPDX-License-Identifier: BSD-3-Clause
-- Documents refer to each other by the names that they have in the source tree; on the site they are HTML,
-- and a man page that a text names becomes a link. Metadata: `page`, the document's name in the tree; `root`,
-- the way from it to the site's top.
local page, root

function Meta(meta)
    page = pandoc.utils.stringify(meta.page)
    root = pandoc.utils.stringify(meta.root)
end

-- What a link from this page means, from the top of the tree.
local function resolved(target)
    local path = page:gsub("[^/]*$", "") .. target
    local count
    path = path:gsub("/%./", "/")
    repeat
        path, count = path:gsub("[^/]+/%.%./", "", 1)
    until count == 0
    return path
end

-- What a file of the tree is called on the site: as html() in scripts/site.
local function html(path)
    if path == "README.md" then
        return "index.html"
    end
    if path == "NEWS" or path:match("%.h$") then
        return path .. ".html"
    end
    return (path:gsub("%.md$", ".html"))
end

function Link(link)
    local target, place = link.target:match("^([^#:]+)(#?[^:]*)$")
    if target then
        link.target = root .. html(resolved(target)) .. place
    end
    return link
end

function Code(code)
    local found = code.text:match("^man/([%w_.-]+%.%d)$")
    if found then
        return pandoc.Link(code, root .. "man/" .. found .. ".html")
    end
end

return { { Meta = Meta }, { Link = Link }, { Code = Code } }
